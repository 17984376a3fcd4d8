"use strict";
/* Exchanges the token of a link, `/#token=...`, for the cookie and removes it from the address. A browser does not send
   the fragment to the server, so the token reaches no log. */
(() => {
  const post = (fields) => fetch("/login", { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(fields) });
  async function enter() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token === null) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    const failed = document.getElementById("login-failed");   /* only on the login page */
    let answer = await post({ token });
    if (answer.status === 409) {   /* a link must not change the account silently: the next message would go to the wrong account */
      if (!confirm("You are logged in with another account. Log in with the token from this link instead?")) return;
      answer = await post({ token, change: "yes" });
      if (answer.ok) location.reload();
    } else if (failed && answer.ok) location.reload();
    else if (failed) failed.hidden = false;
  }
  const run = () => enter().catch(() => { const failed = document.getElementById("login-failed"); if (failed) failed.hidden = false; });
  addEventListener("hashchange", run);
  run();
})();
