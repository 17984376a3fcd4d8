"use strict";
/* The frame: what every part of the page may call, under one name. */
window.recollect = (() => {
  const self = { current: null, actions: {} };
  const $ = (id) => document.getElementById(id);
  const narrow = matchMedia("(max-width: 799px)");

  self.emit = (name, detail = {}) => document.dispatchEvent(new CustomEvent("recollect:" + name, { detail }));
  self.address = (session, message) =>
    "/c/" + encodeURIComponent(session) + (message ? "?m=" + encodeURIComponent(message) : "");

  /* Errors that a program is told in its own terms, in words that fit what a person can do here. */
  const WORDS = {
    "session-busy": "Another window or program is answering in this conversation.",
    "session-taken": "Another window has taken this conversation over.",
    "session-not-found": "This conversation is not here. It may have been erased.",
    "session-in-trash": "This conversation is in the trash. Restore it there first.",
    "session-has-forks": "Other conversations were forked from this one, and share its past.",
    "message-not-found": "This message is not here any more.",
    "branch-not-found": "This branch is not here any more.",
    "turn-not-found": "This answer is not here any more.",
    "tool-call-not-found": "This tool call is not here any more.",
    "compaction-not-found": "This summary is not here any more.",
    "compacted-meanwhile": "This conversation was summed up elsewhere meanwhile. Look at it, then try again.",
    "stale-revision": "This was changed elsewhere meanwhile. Look at it again, then repeat what you did.",
    "key-reused": "This was sent before with other words. Send it again.",
    "already-said": "This was said before. It is in the conversation.",
    "turn-closed": "This answer has ended already.",
    "store-closed": "The server is stopping. Start it again: everything is kept.",
    "store-locked": "Another program keeps the store locked. Nothing was written: try again in a moment.",
  };
  const told = (problem) => WORDS[problem?.code] || problem?.detail;
  self.words = (error) => error.message || String(error);
  self.isBusy = (error) => ["session-busy", "session-taken"].includes(error.problem?.code);

  /* A request to our own server. What fails is an Error with a sentence for a person, and `problem` where there is one. */
  self.send = async (method, url, body, options = {}) => {
    const headers = { Accept: options.accept || "application/json", ...(options.headers || {}) };
    const form = body instanceof FormData;
    if (body !== undefined && !form) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(url, {
        method, headers, signal: options.signal,
        body: body === undefined ? undefined : form ? body : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw Object.assign(new Error("The server can not be reached. It is tried again by itself."), { offline: true });
    }
    if (!answer.ok) {
      const text = await answer.text();
      let problem = null;
      try { problem = JSON.parse(text); } catch { /* a page, or nothing */ }
      throw Object.assign(new Error(told(problem) || `The server answered ${answer.status}.`), { problem, status: answer.status });
    }
    const kind = answer.headers.get("content-type") || "";
    return kind.includes("json") ? answer.json() : answer.text();
  };
  self.key = () => crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(16)).join("-");

  self.toast = (text, { action, run, seconds = action ? 8 : 4, level } = {}) => {
    const place = document.querySelector(".toasts");
    const toast = document.createElement("div");
    toast.className = "toast" + (level ? " " + level : "");
    const words = document.createElement("span");
    words.textContent = text;
    toast.append(words);
    let timer = 0;
    const close = () => { clearTimeout(timer); toast.remove(); };
    if (action) {
      const button = document.createElement("button");
      button.className = "button compact";
      button.type = "button";
      button.textContent = action;
      button.addEventListener("click", () => { close(); run?.(); });
      toast.append(button);
    }
    const wait = () => { clearTimeout(timer); timer = setTimeout(close, seconds * 1000); };
    toast.addEventListener("pointerenter", () => clearTimeout(timer));
    toast.addEventListener("focusin", () => clearTimeout(timer));
    toast.addEventListener("pointerleave", wait);
    toast.addEventListener("focusout", wait);
    place.append(toast);
    while (place.children.length > 4) place.firstElementChild.remove();
    wait();
    return close;
  };
  self.failed = (error) => { if (error?.name !== "AbortError") self.toast(error.message || String(error), { level: "error", seconds: 8 }); };

  /* The panel on the right: a piece of HTML of ours, or the address of one. */
  let before = null, asked = 0, read = 0;
  self.panel = async (what) => {
    const panel = $("panel"), mine = ++asked;
    if (!what) {
      panel.hidden = true;
      panel.replaceChildren();
      panel.dataset.url = "";
      if (before?.isConnected) before.focus();
      before = null;
      return;
    }
    const url = what.startsWith("/") ? what : "";
    const html = url ? await self.send("GET", url, undefined, { accept: "text/html" }).catch((error) => void self.failed(error)) : what;
    if (html === undefined || mine !== asked) return;   /* another one was opened meanwhile, or none is wanted */
    if (panel.hidden) before = document.activeElement;
    panel.innerHTML = html;
    panel.dataset.url = url;
    panel.hidden = false;
    window.htmx?.process(panel);
    self.emit("panel", { panel });
    panel.querySelector("[autofocus], .panel-head button, button, a")?.focus({ preventScroll: true });
  };
  self.refreshPanel = async () => {
    const panel = $("panel");
    const url = panel.dataset.url, mine = ++read;
    if (panel.hidden || !url || panel.contains(document.activeElement) && document.activeElement.matches("input, textarea")) return;
    const html = await self.send("GET", url, undefined, { accept: "text/html" }).catch(() => undefined);
    if (html !== undefined && panel.dataset.url === url && mine === read) self.morph(panel, html);
  };

  self.drawer = (open = !document.body.classList.contains("drawer")) => {
    document.body.classList.toggle("drawer", open);
    $("scrim").hidden = !open;
    if (open) document.querySelector("#sidebar button, #sidebar a, #sidebar input")?.focus({ preventScroll: true });
  };

  /* Menus are popovers that stand beside the button that opened them. */
  self.menu = (menu, button) => {
    if (menu.matches(":popover-open")) { menu.hidePopover(); return; }
    menu.setAttribute("popover", "auto");
    menu.showPopover();
    const at = button.getBoundingClientRect(), size = menu.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.right - size.width, innerWidth - size.width - 8));
    const below = at.bottom + 4 + size.height <= innerHeight - 8;
    menu.style.left = (at.left + size.width <= innerWidth - 8 && at.left < innerWidth / 2 ? at.left : left) + "px";
    menu.style.top = (below ? at.bottom + 4 : Math.max(8, at.top - 4 - size.height)) + "px";
    button.setAttribute("aria-expanded", "true");
    const over = new AbortController();   /* that it was opened is told too, and later than this */
    menu.addEventListener("toggle", (event) => {
      if (event.newState !== "closed") return;
      over.abort();
      button.setAttribute("aria-expanded", "false");
      if (menu.contains(document.activeElement)) button.focus();
    }, { signal: over.signal });
    menu.querySelector("button, a, input")?.focus({ preventScroll: true });
  };

  /* Make what is there like what is given, node by node: what is equal stays the same node, so that selections, open
     cards, focus and scroll positions in it live on. Text that only grew is added to. */
  const key = (node) => node.nodeType === 1 ? node.getAttribute("data-key") || node.id || null : null;
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  function attributes(to, from) {
    for (const { name, value } of from.attributes)
      if (to.getAttribute(name) !== value && !(name === "open" && to.hasAttribute("data-touched"))) to.setAttribute(name, value);
    for (const { name } of [...to.attributes])
      if (!from.hasAttribute(name) && name !== "open" && name !== "data-touched") to.removeAttribute(name);
  }
  function same(to, from) {
    if (to.nodeType === 3 || to.nodeType === 8) {
      if (to.data === from.data) return;
      if (from.data.startsWith(to.data)) to.appendData(from.data.slice(to.data.length));
      else to.data = from.data;
      return;
    }
    if (to.nodeType !== 1 || to.isEqualNode(from)) return;
    attributes(to, from);
    if (to.hasAttribute("data-keep")) return;
    children(to, [...from.childNodes]);
  }
  function children(parent, wanted) {
    const keyed = new Map();
    for (const child of parent.childNodes) if (key(child)) keyed.set(key(child), child);
    let at = parent.firstChild;
    for (const node of wanted) {
      const known = key(node) && keyed.get(key(node));
      if (known && known !== at && alike(known, node)) parent.insertBefore(known, at);
      const here = known && alike(known, node) ? known : at && alike(at, node) && !key(at) ? at : null;
      if (here) { same(here, node); if (here === at) at = at.nextSibling; }
      else parent.insertBefore(node, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  }
  self.parse = (html) => { const template = document.createElement("template"); template.innerHTML = html; return template.content; };
  self.morph = (element, html) => children(element, [...self.parse(html).childNodes]);
  self.morphOne = (element, node) => { if (alike(element, node)) { same(element, node); return element; } element.replaceWith(node); return node; };
  self.morphFrom = (element, count, nodes) => {
    /* Leave the first so many elements alone, and make what follows them like the given ones. */
    const kept = element.children[count - 1] || null;
    let at = kept ? kept.nextSibling : element.firstChild;
    if (kept && at?.nodeType === 3 && nodes[0]?.nodeType !== 3) at = at.nextSibling;   /* the line break that ends what stays */
    for (const node of nodes) {
      if (at && alike(at, node)) { const next = at.nextSibling; same(at, node); at = next; }
      else element.insertBefore(node, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };

  self.copy = async (text, what = "Copied") => {
    try { await navigator.clipboard.writeText(text); }
    catch {
      const field = document.createElement("textarea");
      field.value = text; field.className = "hidden-label";
      document.body.append(field); field.select(); document.execCommand("copy"); field.remove();
    }
    self.toast(what);
  };

  /* A button with data-do="name" calls recollect.actions.name(button, event). */
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-do]");
    if (!button) return;
    const action = self.actions[button.dataset.do];
    if (!action) return;
    if (button.tagName === "A" && (event.metaKey || event.ctrlKey || event.shiftKey || event.button)) return;
    event.preventDefault();
    const menu = button.closest("[popover]");
    if (menu?.matches(":popover-open")) menu.hidePopover();
    Promise.resolve(action(button, event)).catch(self.failed);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open], :popover-open")) {
      if (document.body.classList.contains("drawer")) self.drawer(false);
      else if (!$("panel").hidden && $("panel").contains(document.activeElement)) self.panel(null);
    }
    const menu = event.target.closest?.(".menu");
    if (menu && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const items = [...menu.querySelectorAll("button, a")].filter((item) => !item.hidden);
      const next = items.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      items[(next + items.length) % items.length]?.focus();
      event.preventDefault();
    }
  });
  document.addEventListener("click", (event) => {
    /* What a person opened or closed stays so, whatever the server thinks. */
    const summary = event.target.closest?.("summary");
    if (summary) summary.parentElement.setAttribute("data-touched", "");
  }, true);

  self.actions.drawer = () => self.drawer();
  self.actions["close-panel"] = () => self.panel(null);
  self.actions.menu = (button) => self.menu($(button.getAttribute("aria-controls")), button);
  self.actions.panel = (button) => self.panel(button.dataset.url);
  self.actions.copy = (button) => self.copy(button.dataset.text || "");

  /* What a person asks for last is what is opened, whichever answer comes last: gives what says whether it is still that. */
  let wish = null;
  self.wishing = () => { const mine = wish = {}; return () => wish === mine; };

  /* Begin a new conversation, and open it. */
  self.begin = async (fields = {}) => {
    const still = self.wishing();
    const besides = self.isSending?.(self.current) ? { besides: self.current } : {};   /* it is empty for a moment only */
    const { session } = await self.send("POST", "/page/new", { ...fields, ...besides }, { headers: { "Idempotency-Key": self.key() } });
    if (still()) await self.open(session);
    return session;
  };
  self.actions.new = () => self.begin();
  self.narrow = () => narrow.matches;
  return self;
})();
