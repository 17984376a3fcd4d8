"use strict";
/* Export, import, theme, keyboard shortcuts, and confirmation of irreversible actions. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const openDialog = () => document.querySelector("dialog[open]");
  r.actions["close-dialog"] = (button) => button.closest("dialog").close();
  for (const dialog of document.querySelectorAll("dialog.dialog")) dialog.addEventListener("click", (event) => { if (event.target === dialog && dialog.id !== "import") dialog.close(); });

  /* Ask for confirmation. */
  r.ask = (title, text, yes) => new Promise((answer) => {
    const dialog = $("ask");
    $("ask-title").textContent = title;
    $("ask-text").textContent = text;
    $("ask-yes").textContent = yes;
    dialog.returnValue = "";
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  /* Theme: stored in a cookie, so that the server renders the page with it. */
  const themes = $("theme-menu");
  r.actions.themes = (button) => r.menu(themes, button);
  r.theme = (name) => {
    document.documentElement.dataset.theme = name;
    for (const item of themes.querySelectorAll("[data-theme]")) item.setAttribute("aria-checked", String(item.dataset.theme === name));
    r.remember("theme", name);
  };
  themes.addEventListener("click", (event) => { const item = event.target.closest("[data-theme]"); if (item) { r.theme(item.dataset.theme); themes.hidePopover(); } });

  /* Export. */
  const exportDialog = $("export");
  let which = null;
  r.exportDialog = (session = r.current, title = "") => {
    const form = exportDialog.querySelector("form"), oneOption = form.querySelector('[value="one"]');
    which = session;
    oneOption.disabled = !session;
    (session ? oneOption : form.querySelector('[value="all"]')).checked = true;
    $("export-this").textContent = title && session !== r.current ? `“${title}”` : "This conversation";
    enforceCompleteness();
    exportDialog.showModal();
  };
  /* JSON formats are for import, so they always include tool output. */
  function enforceCompleteness() {
    const form = exportDialog.querySelector("form").elements, machine = form.format.value.startsWith("json");
    form.output.disabled = machine;
    if (machine) form.output.checked = true;
  }
  exportDialog.addEventListener("change", enforceCompleteness);
  r.actions.export = () => r.exportDialog();
  exportDialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.currentTarget.elements;
    const parameters = new URLSearchParams({ format: form.format.value, output: form.output.checked, redact: form.redact.checked });
    if (form.scope.value === "one" && which) parameters.set("session", which);
    const link = document.createElement("a");
    link.href = "/page/export?" + parameters;
    link.download = "";
    document.body.append(link);
    link.click();
    link.remove();
    exportDialog.close();
    r.toast("Download started");
  });

  /* Import. */
  const importDialog = $("import"), entry = importDialog.querySelector("form");
  const file = entry.elements.file, report = entry.querySelector("[data-report]"), begin = entry.querySelector(".primary");
  const zone = entry.querySelector(".drop"), name = entry.querySelector("[data-file]");
  const bytes = (size) => size < 1000 ? size + " B" : size < 1e6 ? (size / 1e3).toFixed(1) + " kB" : (size / 1e6).toFixed(1) + " MB";
  function chosen() {
    const selected = file.files[0];
    name.textContent = selected ? `${selected.name} (${bytes(selected.size)})` : "Choose a file, or drop it here";
    begin.disabled = !selected;
    report.replaceChildren();
  }
  r.importDialog = () => { entry.reset(); chosen(); importDialog.showModal(); };
  r.actions.import = () => r.importDialog();
  file.addEventListener("change", chosen);
  for (const kind of ["dragenter", "dragover"]) zone.addEventListener(kind, (event) => { event.preventDefault(); zone.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files.length) { file.files = event.dataTransfer.files; chosen(); } });
  entry.addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = file.files[0], isCurrent = () => file.files[0] === mine;   /* the dialog may be open for another file by now */
    begin.disabled = true;
    report.textContent = "Importing…";
    try {
      const answer = await fetch("/page/import?conflict=" + entry.elements.conflict.value, {
        method: "POST", body: mine, headers: { "Content-Type": "application/octet-stream", Accept: "text/html" },
      });
      const text = await answer.text();
      if (answer.ok) { if (isCurrent()) report.innerHTML = text; else r.toast(`${mine.name}: ${r.parse(text).textContent.trim().split(/\s*\n\s*/)[0]}`, { seconds: 8 }); r.reloadSessions?.(); }
      else { let problem = null; try { problem = JSON.parse(text); } catch { /* reported below */ } throw new Error(problem?.detail || `The server responded with status ${answer.status}.`); }
    } catch (error) {
      const reason = error instanceof TypeError ? "Can't reach the server, or it rejected the file. Try again." : error.message;
      if (!isCurrent()) { r.toast(`${mine.name}: ${reason}`, { level: "error", seconds: 8 }); return; }
      report.textContent = reason;
      begin.disabled = false;
    }
  });
  report.addEventListener("click", (event) => { if (event.target.closest("[data-do='session-link']")) importDialog.close(); });
  r.actions["session-link"] = (link) => {
    const session = r.fromAttribute(link.dataset.session);
    if (r.open) return r.open(session);
    location.assign(r.address(session));
  };

  /* The skip link only moves the focus: a fragment in the address would add a history entry. */
  document.querySelector(".skip")?.addEventListener("click", (event) => { event.preventDefault(); $("conversation").focus(); });

  /* Keyboard shortcuts. */
  r.actions.keys = () => { if (!openDialog()) $("keys").showModal(); };
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
  function neighbor(step) {
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
      if (!openDialog() || openDialog().id === "search") r.search();
      return;
    }
    if (openDialog() || document.querySelector(":popover-open")) return;
    if (event.altKey && !event.ctrlKey && !event.metaKey) {
      const code = event.code;
      if (code === "KeyN") { event.preventDefault(); r.startConversation().catch(r.failed); }
      else if (code === "KeyS") {
        event.preventDefault();
        const side = $("sidebar");
        if (side.contains(document.activeElement)) { if (document.body.classList.contains("drawer")) r.drawer(false); (back?.isConnected ? back : $("conversation")).focus(); }
        else { back = document.activeElement; if (r.narrow()) r.drawer(true); document.querySelector('#sessions a[tabindex="0"]')?.focus(); }
      } else if (code === "ArrowUp" || code === "ArrowDown") { event.preventDefault(); neighbor(code === "ArrowUp" ? -1 : 1); }
      return;
    }
    if (event.ctrlKey || event.metaKey || typing(event.target)) return;
    if (event.key === "?") { event.preventDefault(); r.actions.keys(); }
    else if (event.key === "/") {
      const field = document.querySelector("#composer textarea, #conversation textarea");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (document.activeElement === document.body && /^[\p{L}\p{N}]$/u.test(event.key)) $("composer-text")?.focus();   /* the key press goes to the message box */
  });
})();
