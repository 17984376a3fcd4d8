"use strict";
/* The frame: functions for all other scripts, in window.recollect. */
window.recollect = (() => {
  const self = { current: null, actions: {} };
  const $ = (id) => document.getElementById(id);
  const narrow = matchMedia("(max-width: 799px)");

  self.emit = (name, detail = {}) => document.dispatchEvent(new CustomEvent("recollect:" + name, { detail }));
  /* A session id as a segment of a path, and back. A browser resolves `.` and `..`, so the server takes `~.` for `.`. */
  self.segment = (id) => encodeURIComponent(/^~*\.{1,2}$/.test(id) ? "~" + id : id);
  self.fromSegment = (segment) => {
    const id = decodeURIComponent(segment);
    return /^~+\.{1,2}$/.test(id) ? id.slice(1) : id;
  };
  /* An id in an attribute, and back. HTML has no NUL and changes CR to LF, so these two and `%` are percent-encoded. */
  self.toAttribute = (id) => id.replace(/[%\0\r]/g, encodeURIComponent);
  self.fromAttribute = (value) => value && decodeURIComponent(value);
  self.address = (session, message) =>
    "/c/" + self.segment(session) + (message ? "?m=" + encodeURIComponent(message) : "");

  /* Sentences for problem codes whose detail is written for API clients. */
  const SENTENCES = {
    "session-busy": "Another window or program is answering in this conversation.",
    "session-taken": "Another window took over this conversation.",
    "session-not-found": "Conversation not found. It may have been erased.",
    "session-in-trash": "This conversation is in the trash. Restore it first.",
    "session-has-forks": "Other conversations were forked from this one and share its messages.",
    "message-not-found": "This message no longer exists.",
    "branch-not-found": "This branch no longer exists.",
    "turn-not-found": "This answer no longer exists.",
    "tool-call-not-found": "This tool call no longer exists.",
    "compaction-not-found": "This summary no longer exists.",
    "compacted-meanwhile": "This conversation was compacted in the meantime. Review it, then try again.",
    "stale-revision": "This conversation was changed in the meantime. Review it, then try again.",
    "key-reused": "This was already sent with different text. Send it again.",
    "turn-exists": "This message was already sent. It is in the conversation.",
    "turn-closed": "This answer has already ended.",
    "store-closed": "The server is stopping. Restart it to continue.",
    "store-locked": "Another program has locked the database. Nothing was saved. Try again in a moment.",
  };
  const sentenceOf = (problem) => SENTENCES[problem?.code] || problem?.detail;
  self.words = (error) => error.message || String(error);
  self.isBusy = (error) => ["session-busy", "session-taken"].includes(error.problem?.code);

  /* Send a request to the server. Throw an Error with a readable message, and with `problem` if the server sent one. */
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
      throw Object.assign(new Error("Can't reach the server. Reconnecting…"), { offline: true });
    }
    if (!answer.ok) {
      const text = await answer.text();
      let problem = null;
      try { problem = JSON.parse(text); } catch { /* HTML, or an empty body */ }
      throw Object.assign(new Error(sentenceOf(problem) || `The server responded with status ${answer.status}.`), { problem, status: answer.status });
    }
    const kind = answer.headers.get("content-type") || "";
    return kind.includes("json") ? answer.json() : answer.text();
  };
  self.key = () => crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(16)).join("-");

  self.toast = (text, { action, run, seconds = action ? 8 : 4, level } = {}) => {
    const container = document.querySelector(".toasts");
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
    container.append(toast);
    while (container.children.length > 4) container.firstElementChild.remove();
    wait();
    return close;
  };
  self.failed = (error) => { if (error?.name !== "AbortError") self.toast(error.message || String(error), { level: "error", seconds: 8 }); };

  /* The panel on the right: HTML from our templates, or its URL. */
  let focusBefore = null, requests = 0, refreshes = 0;
  self.panel = async (content) => {
    const panel = $("panel"), mine = ++requests;
    if (!content) {
      panel.hidden = true;
      panel.replaceChildren();
      panel.dataset.url = "";
      if (focusBefore?.isConnected) focusBefore.focus();
      focusBefore = null;
      return;
    }
    const url = content.startsWith("/") ? content : "";
    const html = url ? await self.send("GET", url, undefined, { accept: "text/html" }).catch((error) => void self.failed(error)) : content;
    if (html === undefined || mine !== requests) return;   /* another panel was opened or closed meanwhile */
    if (panel.hidden) focusBefore = document.activeElement;
    panel.innerHTML = html;
    panel.dataset.url = url;
    panel.hidden = false;
    self.emit("panel", { panel });
    panel.querySelector("[autofocus], .panel-head button, button, a")?.focus({ preventScroll: true });
  };
  self.refreshPanel = async () => {
    const panel = $("panel");
    const url = panel.dataset.url, mine = ++refreshes;
    if (panel.hidden || !url || panel.contains(document.activeElement) && document.activeElement.matches("input, textarea")) return;
    const html = await self.send("GET", url, undefined, { accept: "text/html" }).catch(() => undefined);
    if (html !== undefined && panel.dataset.url === url && mine === refreshes) self.morph(panel, html);
  };

  self.drawer = (open = !document.body.classList.contains("drawer")) => {
    document.body.classList.toggle("drawer", open);
    $("scrim").hidden = !open;
    if (open) document.querySelector("#sidebar button, #sidebar a, #sidebar input")?.focus({ preventScroll: true });
  };

  /* Menus are popovers next to the button that opened them. */
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
    const controller = new AbortController();   /* not { once: true }: the toggle event of opening comes first */
    menu.addEventListener("toggle", (event) => {
      if (event.newState !== "closed") return;
      controller.abort();
      button.setAttribute("aria-expanded", "false");
      if (menu.contains(document.activeElement)) button.focus();
    }, { signal: controller.signal });
    menu.querySelector("button, a, input")?.focus({ preventScroll: true });
  };

  /* Change existing nodes to match new ones. Equal nodes stay, so that selections, open cards, focus and scroll positions
     survive. Text that only grew is appended. */
  const key = (node) => node.nodeType === 1 ? node.getAttribute("data-key") || node.id || null : null;
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  function morphAttributes(to, from) {
    for (const { name, value } of from.attributes)
      if (to.getAttribute(name) !== value && !(name === "open" && to.hasAttribute("data-touched"))) to.setAttribute(name, value);
    for (const { name } of [...to.attributes])
      if (!from.hasAttribute(name) && name !== "open" && name !== "data-touched") to.removeAttribute(name);
  }
  function morphNode(to, from) {
    if (to.nodeType === 3 || to.nodeType === 8) {
      if (to.data === from.data) return;
      if (from.data.startsWith(to.data)) to.appendData(from.data.slice(to.data.length));
      else to.data = from.data;
      return;
    }
    if (to.nodeType !== 1 || to.isEqualNode(from)) return;
    morphAttributes(to, from);
    if (to.hasAttribute("data-keep")) return;
    morphChildren(to, [...from.childNodes]);
  }
  function morphChildren(parent, nodes) {
    const keyed = new Map();
    for (const child of parent.childNodes) if (key(child)) keyed.set(key(child), child);
    let at = parent.firstChild;
    for (const node of nodes) {
      const known = key(node) && keyed.get(key(node));
      if (known && known !== at && alike(known, node)) parent.insertBefore(known, at);
      const match = known && alike(known, node) ? known : at && alike(at, node) && !key(at) ? at : null;
      if (match) { morphNode(match, node); if (match === at) at = at.nextSibling; }
      else parent.insertBefore(node, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  }
  self.parse = (html) => { const template = document.createElement("template"); template.innerHTML = html; return template.content; };
  self.morph = (element, html) => morphChildren(element, [...self.parse(html).childNodes]);
  self.morphOne = (element, node) => { if (alike(element, node)) { morphNode(element, node); return element; } element.replaceWith(node); return node; };
  self.morphFrom = (element, count, nodes) => {
    /* Keep the first `count` elements, and change the rest to match `nodes`. */
    const last = element.children[count - 1] || null;
    let at = last ? last.nextSibling : element.firstChild;
    if (last && at?.nodeType === 3 && nodes[0]?.nodeType !== 3) at = at.nextSibling;   /* the line break after the last unchanged element */
    for (const node of nodes) {
      if (at && alike(at, node)) { const next = at.nextSibling; morphNode(at, node); at = next; }
      else element.insertBefore(node, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };

  self.copy = async (text, notice = "Copied") => {
    try { await navigator.clipboard.writeText(text); }
    catch {
      const field = document.createElement("textarea");
      field.value = text; field.className = "hidden-label";
      document.body.append(field); field.select(); document.execCommand("copy"); field.remove();
    }
    self.toast(notice);
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
    /* An element that the user opened or closed keeps its state across updates. */
    const summary = event.target.closest?.("summary");
    if (summary) summary.parentElement.setAttribute("data-touched", "");
  }, true);

  self.actions.drawer = () => self.drawer();
  self.actions["close-panel"] = () => self.panel(null);
  self.actions.menu = (button) => self.menu($(button.getAttribute("aria-controls")), button);
  self.actions.panel = (button) => self.panel(button.dataset.url);
  self.actions.copy = (button) => self.copy(button.dataset.text || "");

  /* The latest navigation wins, regardless of the order of responses. Return a function that returns whether this one is still the latest. */
  let navigation = null;
  self.beginNavigation = () => { const mine = navigation = {}; return () => navigation === mine; };

  /* Create a conversation and open it. */
  self.startConversation = async (fields = {}) => {
    const still = self.beginNavigation();
    const besides = self.isSending?.(self.current) ? { besides: self.current } : {};   /* it only looks empty: its first message is being sent */
    const { session } = await self.send("POST", "/page/new", { ...fields, ...besides }, { headers: { "Idempotency-Key": self.key() } });
    if (still()) await self.open(session);
    return session;
  };
  self.actions.new = () => self.startConversation();
  self.narrow = () => narrow.matches;
  return self;
})();
