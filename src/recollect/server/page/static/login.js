"use strict";
/* The token of a link, `/#token=...`: exchanged for the cookie and removed from the address. A fragment is not sent to
   the server, so the token reaches no log on the way. */
(() => {
  const post = (fields) => fetch("/login", { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(fields) });
  async function enter() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token === null) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    const failed = document.getElementById("login-failed");   /* only on the login page */
    let answer = await post({ token });
    if (answer.status === 409) {   /* a link must not change the account silently: what is typed next would be another's */
      if (!confirm("You are logged in as someone else. Log in with the token of this link instead?")) return;
      answer = await post({ token, change: "yes" });
      if (answer.ok) location.reload();
    } else if (failed && answer.ok) location.reload();
    else if (failed) failed.hidden = false;
  }
  const run = () => enter().catch(() => { const failed = document.getElementById("login-failed"); if (failed) failed.hidden = false; });
  addEventListener("hashchange", run);
  run();
})();
