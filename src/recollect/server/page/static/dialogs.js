"use strict";
/* Export, import, the theme, the keys, and a question before what can not be undone. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const opened = () => document.querySelector("dialog[open]");
  r.actions["close-dialog"] = (button) => button.closest("dialog").close();
  for (const dialog of document.querySelectorAll("dialog.dialog")) dialog.addEventListener("click", (event) => { if (event.target === dialog && dialog.id !== "import") dialog.close(); });

  /* A question that is answered yes or no. */
  r.ask = (title, text, yes) => new Promise((answer) => {
    const dialog = $("ask");
    $("ask-title").textContent = title;
    $("ask-text").textContent = text;
    $("ask-yes").textContent = yes;
    dialog.returnValue = "";
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  /* Theme: the cookie has the server render it at once. */
  const themes = $("theme-menu");
  r.actions.themes = (button) => r.menu(themes, button);
  r.theme = (name) => {
    document.documentElement.dataset.theme = name;
    for (const item of themes.querySelectorAll("[data-theme]")) item.setAttribute("aria-checked", String(item.dataset.theme === name));
    r.remember("theme", name);
  };
  themes.addEventListener("click", (event) => { const item = event.target.closest("[data-theme]"); if (item) { r.theme(item.dataset.theme); themes.hidePopover(); } });

  /* Export. */
  const exported = $("export");
  let which = null;
  r.exportDialog = (session = r.current, title = "") => {
    const form = exported.querySelector("form"), one = form.querySelector('[value="one"]');
    which = session;
    one.disabled = !session;
    (session ? one : form.querySelector('[value="all"]')).checked = true;
    $("export-this").textContent = title && session !== r.current ? `“${title}”` : "This conversation";
    whole();
    exported.showModal();
  };
  /* What is meant to be imported again is whole. */
  function whole() {
    const form = exported.querySelector("form").elements, machine = form.format.value.startsWith("json");
    form.output.disabled = machine;
    if (machine) form.output.checked = true;
  }
  exported.addEventListener("change", whole);
  r.actions.export = () => r.exportDialog();
  exported.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.currentTarget.elements;
    const asked = new URLSearchParams({ format: form.format.value, output: form.output.checked, redact: form.redact.checked });
    if (form.scope.value === "one" && which) asked.set("session", which);
    const link = document.createElement("a");
    link.href = "/page/export?" + asked;
    link.download = "";
    document.body.append(link);
    link.click();
    link.remove();
    exported.close();
    r.toast("The file is on its way to your downloads");
  });

  /* Import. */
  const imported = $("import"), entry = imported.querySelector("form");
  const file = entry.elements.file, report = entry.querySelector("[data-report]"), begin = entry.querySelector(".primary");
  const zone = entry.querySelector(".drop"), name = entry.querySelector("[data-file]");
  const bytes = (size) => size < 1000 ? size + " B" : size < 1e6 ? (size / 1e3).toFixed(1) + " kB" : (size / 1e6).toFixed(1) + " MB";
  function chosen() {
    const one = file.files[0];
    name.textContent = one ? `${one.name} (${bytes(one.size)})` : "Choose a file, or drop it here";
    begin.disabled = !one;
    report.replaceChildren();
  }
  r.importDialog = () => { entry.reset(); chosen(); imported.showModal(); };
  r.actions.import = () => r.importDialog();
  file.addEventListener("change", chosen);
  for (const kind of ["dragenter", "dragover"]) zone.addEventListener(kind, (event) => { event.preventDefault(); zone.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files.length) { file.files = event.dataTransfer.files; chosen(); } });
  entry.addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = file.files[0], here = () => file.files[0] === mine;   /* the dialog may be opened for another file meanwhile */
    begin.disabled = true;
    report.textContent = "Importing…";
    try {
      const answer = await fetch("/page/import?conflict=" + entry.elements.conflict.value, {
        method: "POST", body: mine, headers: { "Content-Type": "application/octet-stream", Accept: "text/html" },
      });
      const text = await answer.text();
      if (answer.ok) { if (here()) report.innerHTML = text; else r.toast(`${mine.name}: ${r.parse(text).textContent.trim().split(/\s*\n\s*/)[0]}`, { seconds: 8 }); r.reloadSessions?.(); }
      else { let problem = null; try { problem = JSON.parse(text); } catch { /* told below */ } throw new Error(problem?.detail || `The server answered ${answer.status}.`); }
    } catch (error) {
      const told = error instanceof TypeError ? "The server can not be reached, or it took no more of the file. Try again." : error.message;
      if (!here()) { r.toast(`${mine.name}: ${told}`, { level: "error", seconds: 8 }); return; }
      report.textContent = told;
      begin.disabled = false;
    }
  });
  report.addEventListener("click", (event) => { if (event.target.closest("[data-do='session-link']")) imported.close(); });
  r.actions["session-link"] = (link) => r.open ? r.open(link.dataset.session) : location.assign(r.address(link.dataset.session));

  /* The skip link moves the focus and nothing else: a hash in the address would be a step in the history. */
  document.querySelector(".skip")?.addEventListener("click", (event) => { event.preventDefault(); $("conversation").focus(); });

  /* Keys. */
  r.actions.keys = () => { if (!opened()) $("keys").showModal(); };
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
  function neighbour(step) {
    const all = [...document.querySelectorAll("#sessions section > ul > li > a.session-link")];
    const at = all.findIndex((link) => link.hasAttribute("aria-current"));
    const next = all[at < 0 ? 0 : at + step];
    next?.click();
    next?.scrollIntoView({ block: "nearest" });
  }
  let back = null;
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.defaultPrevented) return;
    const key = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && key === "k") {
      event.preventDefault();
      if (!opened() || opened().id === "search") r.search();
      return;
    }
    if (opened() || document.querySelector(":popover-open")) return;
    if (event.altKey && !event.ctrlKey && !event.metaKey) {
      const code = event.code;
      if (code === "KeyN") { event.preventDefault(); r.begin().catch(r.failed); }
      else if (code === "KeyS") {
        event.preventDefault();
        const side = $("sidebar");
        if (side.contains(document.activeElement)) { if (document.body.classList.contains("drawer")) r.drawer(false); (back?.isConnected ? back : $("conversation")).focus(); }
        else { back = document.activeElement; if (r.narrow()) r.drawer(true); document.querySelector('#sessions a[tabindex="0"]')?.focus(); }
      } else if (code === "ArrowUp" || code === "ArrowDown") { event.preventDefault(); neighbour(code === "ArrowUp" ? -1 : 1); }
      return;
    }
    if (event.ctrlKey || event.metaKey || typing(event.target)) return;
    if (event.key === "?") { event.preventDefault(); r.actions.keys(); }
    else if (event.key === "/") {
      const field = document.querySelector("#composer textarea, #conversation textarea");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (document.activeElement === document.body && /^[\p{L}\p{N}]$/u.test(event.key)) $("composer-text")?.focus();   /* it is typed there */
  });
})();
