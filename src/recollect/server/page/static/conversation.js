"use strict";
/* The open conversation: its items, its scroll position, and the actions on it. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const MAX_ITEMS = 300;       /* items kept in the page: enough for several screens, few enough to lay out quickly */
  const END_DISTANCE = 48;     /* pixels. The view counts as at the end within this distance: about two lines. */
  const GESTURE = 1000;        /* milliseconds for which a gesture may keep moving the view: a smooth scroll, a fling */
  let view = null;             /* the open conversation: session, first, last, older, newer, tags, running, atEnd */
  r.view = () => view;
  const base = () => "/page/conversation/" + r.segment(view.session);
  const idempotencyHeader = () => ({ headers: { "Idempotency-Key": r.key() } });
  const position = (id) => Number((id || "").split(".")[1]) || 0;

  /* --- opening ------------------------------------------------------------------------------------------------ */
  function mount() {
    const element = document.querySelector("#conversation > .conversation-view");
    watcher?.disconnect(); resizer?.disconnect();
    address = location.pathname + location.search;
    if (!element) { view = null; r.current = null; if (document.querySelector("#conversation > .starting")) startFirst().catch(r.failed); return; }
    const data = element.dataset;
    view = {
      element, session: r.fromAttribute(data.session), first: Number(data.first), last: Number(data.last), older: !!data.older, newer: !!data.newer,
      revision: Number(data.revision), tags: new Map(Object.entries(JSON.parse(data.tags || "{}"))), running: !!data.running,
      atEnd: true, top: 0, height: 0, viewHeight: 0, gestureAt: -GESTURE, pointerDown: false, anchor: null, list: $("messages"), scroll: $("scroll"), ended: new Set(), turn: null, turns: 0, pages: 0,
    };
    r.current = view.session;
    document.title = data.title + " · Recollect";
    view.scroll.addEventListener("scroll", scrolled, { passive: true });
    for (const name of ["wheel", "touchmove", "touchend"]) view.scroll.addEventListener(name, noteGesture, { passive: true });
    view.scroll.addEventListener("pointerdown", () => { view.pointerDown = true; }, { passive: true });   /* also on its scrollbar */
    resizer = new ResizeObserver(restoreScroll);
    resizer.observe(view.list); resizer.observe(view.scroll);
    watcher = new IntersectionObserver(onEdgeVisible, { root: view.scroll, rootMargin: "1200px 0px" });
    const mine = view;
    if (data.target) scrollToMessage(data.target); else { toEnd(); requestAnimationFrame(() => { if (view === mine && mine.atEnd) toEnd(); }); }
    watcher.observe($("top"));
    watcher.observe($("bottom"));
    updateState();
    r.emit("mounted", { session: view.session });
    r.emit("opened", { session: view.session });
    r.send("POST", base() + "/opened").catch(() => {});   /* a GET must not change anything */
  }
  /* There is no conversation yet. The page creates one, because a GET of `/` must not. */
  async function startFirst() {
    const { session } = await r.send("POST", "/page/new", {}, idempotencyHeader());
    history.replaceState({ session }, "", r.address(session));
    await r.open(session, undefined, { push: false });
  }
  let watcher = null, resizer = null, opening = null, address = "";
  let changedWhileOpening = null;   /* sessions that changed while one is being opened: the loaded page may be older */

  r.open = async (session, message, { push = true, focus = true } = {}) => {
    opening?.abort();
    r.beginNavigation();
    const abort = opening = new AbortController(), since = changedWhileOpening = new Set();
    const main = $("conversation");
    const slow = setTimeout(() => main.classList.add("loading"), 200);   /* milliseconds: a quick response must not flash the loading state */
    try {
      const url = "/page/conversation/" + r.segment(session) + (message ? "?m=" + encodeURIComponent(message) : "");
      const read = () => r.send("GET", url, undefined, { accept: "text/html", signal: abort.signal });
      let html = await read();
      if (push && message && html.includes('<section class="elsewhere"') && !abort.signal.aborted) {   /* the user chose this message */
        await r.send("POST", "/page/conversation/" + r.segment(session) + "/show", { message }, { signal: abort.signal });
        html = await read();
      }
      if (abort.signal.aborted) return;
      r.emit("leaving", { session: r.current });
      if (push && decodeURIComponent(location.pathname + location.search) !== decodeURIComponent(r.address(session, message)))
        history.pushState({ session }, "", r.address(session, message));
      r.panel(null);
      main.innerHTML = html;
      r.drawer(false);
      mount();
      if (since.has(session) || since.has("")) r.refresh();
      if (focus && !r.narrow() && !document.querySelector("dialog[open]")) $("composer-text").focus({ preventScroll: true });
    } catch (error) { r.failed(error); throw error; } finally {
      clearTimeout(slow);
      if (opening === abort) { main.classList.remove("loading"); changedWhileOpening = null; }
    }
  };
  addEventListener("popstate", () => {
    if (location.pathname + location.search === address) return;   /* only the fragment changed, as with the skip link */
    const path = location.pathname.match(/^\/c\/([^/]+)$/);
    if (path) r.open(r.fromSegment(path[1]), new URLSearchParams(location.search).get("m"), { push: false }).catch(() => {});
    else location.reload();
  });
  r.actions["show-message"] = (button) => r.open(view.session, button.dataset.message);
  r.actions["hide-message"] = () => { view.element.querySelector(".elsewhere")?.remove(); $("composer-text").focus({ preventScroll: true }); };
  r.actions["open-session"] = (link) => r.open(r.fromAttribute(link.dataset.session));

  /* --- scroll position ------------------------------------------------------------------------------------- */
  const distance = () => view.scroll.scrollHeight - view.scroll.scrollTop - view.scroll.clientHeight;
  function toEnd() { if (view) { view.atEnd = true; setScrollTop(view.scroll.scrollHeight); } }
  function followEnd() { view.gestureAt = -GESTURE; toEnd(); }   /* requested by the user: an earlier gesture no longer counts */
  function setScrollTop(to) { view.scroll.scrollTop = to; savePosition(); }
  function savePosition() { view.top = view.scroll.scrollTop; view.height = view.scroll.scrollHeight; view.viewHeight = view.scroll.clientHeight; }
  function noteGesture() { if (view) view.gestureAt = performance.now(); }
  const UPWARDS = ["PageUp", "Home", "ArrowUp", " "];
  document.addEventListener("keydown", ({ key, target }) => { if (UPWARDS.includes(key) && !target.matches?.("input, textarea")) noteGesture(); });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { if (view?.pointerDown) { view.pointerDown = false; noteGesture(); } }, { passive: true });
  /* The scroll event comes with the next frame. Apply the new position before changing the list, so that it is not undone. */
  function syncScroll() { if (Math.abs(view.scroll.scrollTop - view.top) > 1) scrolled(); }
  function saveAnchor() {
    /* Remember the item at the top of the view, so that it stays there when items above it change. */
    const edge = view.scroll.getBoundingClientRect().top;
    view.anchor = null;
    for (const node of view.list.children) {
      if (!node.dataset.key || node.dataset.key.startsWith("day-")) continue;   /* a day separator moves when older messages are added */
      const box = node.getBoundingClientRect();
      if (box.bottom > edge && box.height) { view.anchor = { node, top: box.top - edge }; break; }
    }
  }
  /* Return whether the view was moved up on purpose. Growing content never moves it up; shrinking content or a growing view
     can. If either changed since the last position was saved, only a recent gesture counts. If neither changed, the move was
     intended (by the user, the browser's find, an assistive tool). */
  function isMovedUp() {
    if (view.scroll.scrollTop >= view.top - 1) return false;
    const isSizeUnchanged = view.scroll.scrollHeight === view.height && view.scroll.clientHeight === view.viewHeight;
    return isSizeUnchanged || view.pointerDown || performance.now() - view.gestureAt < GESTURE;
  }
  function scrolled() {
    if (!view) return;
    /* Only scrolling leaves the end, never an image that loads late. */
    if (distance() < END_DISTANCE && !view.newer) view.atEnd = true;
    else if (view.newer || isMovedUp()) view.atEnd = false;
    savePosition();
    saveAnchor();
    if (view.atEnd) $("below").hidden = true;
    else if (distance() > 600 || view.newer) showEndButton(view.fresh ? "New messages" : "Go to end");
  }
  function showEndButton(words) {
    $("below").hidden = false;
    $("below").querySelector("span").textContent = words;
  }
  function restoreScroll() {
    /* Called after every change of size, before it is painted. */
    if (!view) return;
    if (view.atEnd) { toEnd(); return; }
    const anchor = view.anchor;
    if (!anchor?.node.isConnected) return;
    const top = anchor.node.getBoundingClientRect().top - view.scroll.getBoundingClientRect().top;
    if (Math.abs(top - anchor.top) > 0.5) setScrollTop(view.scroll.scrollTop + top - anchor.top);
  }
  function onEdgeVisible(entries) {
    for (const entry of entries) {
      if (!entry.isIntersecting || !view) continue;
      if (entry.target.id === "top" && view.older) page("older");
      if (entry.target.id === "bottom" && view.newer) page("newer");
    }
  }
  /* An IntersectionObserver reports changes only. Observe the edges again, so that one that came into view while nothing could be loaded is reported. */
  function recheckEdges() {
    if (!view?.older && !view?.newer) return;
    for (const node of [$("top"), $("bottom")]) { watcher.unobserve(node); watcher.observe(node); }
  }

  async function page(want) {
    const mine = view, { first, last } = mine;
    if (mine.paging) return;
    mine.paging = true;
    let failed = false;
    try {
      const reply = await r.send("POST", base() + "/items", { want, first, last });
      if (view !== mine) return;
      if (reply.gone) { await gone(reply); return; }
      if (want === "older" ? first !== mine.first : last !== mine.last) return;   /* the list begins or ends elsewhere by now */
      mine.pages++;
      syncScroll(); saveAnchor();
      const known = new Map([...mine.list.children].map((node) => [node.dataset.key, node]));
      const nodes = [];
      for (const [key, tag, html] of reply.items) {
        const existing = known.get(key);
        if (existing && !key.startsWith("day-")) continue;
        if (existing && want === "older") existing.remove();
        if (existing && want === "newer") continue;
        mine.tags.set(key, tag);
        nodes.push(r.parse(html).firstElementChild);
      }
      if (want === "older") {
        mine.first = Math.min(reply.first, mine.first); mine.older = reply.older && reply.items.length > 0;
        mine.list.querySelector("#top").after(...nodes);
      } else {
        mine.last = Math.max(reply.last, mine.last); mine.newer = reply.newer;
        mine.list.querySelector("#bottom").before(...nodes);
      }
      trim(want === "older");
      restoreScroll(); saveAnchor();
      if (reply.revision < mine.revision) r.refresh();   /* this page was read before the latest refresh */
    } catch (error) { failed = true; if (!error.offline) r.failed(error); }
    finally {
      const recheck = () => { if (view === mine && !mine.element.classList.contains("gone")) recheckEdges(); };
      /* After a failure, an edge that moves in and out of view does not request the page again before the retry. */
      if (failed) setTimeout(() => { mine.paging = false; recheck(); }, 3000);
      else { mine.paging = false; requestAnimationFrame(recheck); }
    }
  }

  function trim(below) {
    /* Remove items that are far from the view. They are loaded again when they come near. */
    const items = view.list.querySelectorAll(":scope > [data-key]");
    let excess = items.length - MAX_ITEMS;
    if (excess <= 0) return;
    const all = [...items];
    if (below) {
      while (excess-- > 0) { const node = all.pop(); view.tags.delete(node.dataset.key); node.remove(); }
      while (all.length && !all.at(-1).dataset.message) { const node = all.pop(); view.tags.delete(node.dataset.key); node.remove(); }
      view.last = position(all.at(-1)?.dataset.last || all.at(-1)?.dataset.message); view.newer = true;
    } else {
      while (excess-- > 0) { const node = all.shift(); view.tags.delete(node.dataset.key); node.remove(); }
      while (all.length && !all[0].dataset.message) { const node = all.shift(); view.tags.delete(node.dataset.key); node.remove(); }
      view.first = position(all[0]?.dataset.message); view.older = view.first > 1;
    }
  }

  /* --- updates ----------------------------------------------------------------------------------------- */
  let refreshing = null, following = null;
  r.refresh = () => {
    if (!refreshing) return refreshing = refresh().finally(() => { refreshing = null; });
    /* The running request may return older data. A caller that comes meanwhile waits for the next request. */
    return following ||= refreshing.catch(() => {}).then(() => { following = null; return r.refresh(); });
  };
  async function refresh() {
    const mine = view;
    if (!mine) return;
    const have = Object.fromEntries(mine.tags);
    const endedTurns = new Set(mine.ended), { turns, pages } = mine;
    let reply;
    try { reply = await r.send("POST", base() + "/items", { first: mine.first, last: mine.newer ? mine.last : null, have }); }
    catch (error) { if (!error.offline) r.failed(error); return; }
    if (view !== mine) return;
    if (reply.gone) { await gone(reply).catch(r.failed); return; }
    if (pages !== mine.pages) { r.refresh(); return; }   /* a page was added since the request */
    const { running, turn } = mine;
    reconcile(reply, endedTurns);
    if (turns !== mine.turns) { Object.assign(mine, { running, turn }); r.refresh(); updateState(); }   /* a turn started during the request */
    r.emit("refreshed", { session: mine.session });
    if (!$("panel").hidden) await r.refreshPanel();
  }
  async function gone({ gone: reason }) {
    /* Deleted or erased elsewhere: show a message and open the next conversation. Keep the typed text. */
    const { session, element } = view, typed = $("composer-text").value;
    const title = element.querySelector(".title button").textContent.trim();
    if (element.classList.contains("gone")) return;
    element.classList.add("gone");
    if (!$("panel").hidden) r.panel(null);
    const restore = async () => { await r.send("POST", "/page/session/" + r.segment(session) + "/restore"); await r.open(session); };
    if (reason === "trash") r.toast(`“${title}” was deleted in another window or program.`, { action: "Restore", run: () => restore().catch(r.failed), seconds: 12 });
    else r.toast(`“${title}” was erased in another window or program.`, { seconds: 12 });
    if (reason === "trash" || !typed.trim()) { await r.openNext(session); return; }
    r.saveDraft(await r.startConversation(), typed);
  }

  function reconcile(reply, endedTurns) {
    const before = view.last, list = view.list;
    syncScroll(); saveAnchor();
    const known = new Map([...list.children].filter((node) => node.dataset.key).map((node) => [node.dataset.key, node]));
    const live = new Map([...list.querySelectorAll(":scope > .live")].map((node) => [node.dataset.turn, node]));
    /* A stored answer replaces the live element that showed it while it streamed. */
    const items = reply.items.map(([key, tag, html]) => {
      const fresh = html === null ? null : r.parse(html).firstElementChild;
      const turn = fresh?.dataset.turn;
      if (turn && !known.has(key) && live.has(turn) && !key.startsWith("live-")) {
        const node = live.get(turn);
        live.delete(turn);
        known.delete("live-" + turn);
        node.dataset.key = key;
        known.set(key, node);
      }
      return { key, tag, fresh };
    });
    /* Remove old items first: the remaining ones need not move, and keep their selection. */
    const keys = new Set(items.map((item) => item.key));
    for (const [key, node] of known) {
      if (keys.has(key) || (key.startsWith("live-") && !endedTurns.has(node.dataset.turn))) continue;
      node.remove();
    }
    view.tags = new Map();
    let last = $("top");
    for (const { key, tag, fresh } of items) {
      let node = known.get(key);
      const ahead = key.startsWith("live-") && Number(node?.dataset.version) >= Number(fresh?.dataset.version);
      if (fresh && !ahead) node = node ? r.morphOne(node, fresh) : fresh;
      if (!node) { r.refresh(); continue; }
      view.tags.set(key, tag);
      if (last.nextElementSibling !== node) last.after(node);
      last = node;
    }
    const running = !!reply.turn && !view.ended.has(reply.turn);
    Object.assign(view, { revision: reply.revision, first: reply.first, last: reply.last, older: reply.older, newer: reply.newer, running, turn: running ? reply.turn : null });
    if (reply.last > before && !view.atEnd) { view.fresh = true; showEndButton("New messages"); }
    updateHeader(reply);
    if (!view.newer) trim(!view.atEnd && view.scroll.scrollTop < distance());   /* not on the side that the user reads */
    restoreScroll();
    updateState();
    recheckEdges();
  }
  function updateHeader(reply) {
    const head = view.element.querySelector(".page-head");
    document.title = reply.title + " · Recollect";
    view.headerStale = !!head.querySelector(":popover-open, .rename");   /* updated when the menu or field is closed */
    if (reply.header && !view.headerStale) r.morph(head, reply.header);
  }
  document.addEventListener("toggle", (event) => { if (event.newState === "closed" && view?.headerStale && event.target.matches?.("[popover]")) r.refresh(); }, true);
  function updateState() {
    /* Update the elements that depend on the state: the empty page, Send or Stop. */
    $("empty").hidden = !!view.list.querySelector(":scope > [data-key]");
    view.element.classList.toggle("running", view.running);
    $("send").hidden = view.running;
    $("stop").hidden = !view.running;
    if (view.atEnd) view.fresh = false;
  }
  /* Apply live progress: blocks by index; for a text, the elements after the unchanged ones. */
  r.progress = ({ session, turn, since, version, count, blocks }) => {
    if (!view || session !== view.session || view.newer || view.ended.has(turn)) return;
    let article = view.list.querySelector(`:scope > .live[data-turn="${CSS.escape(turn)}"]`);
    if (!article) {
      if (view.list.querySelector(`:scope > .assistant[data-turn="${CSS.escape(turn)}"]`)) return;   /* already stored */
      article = r.parse('<article class="message assistant live" aria-label="Agent" aria-busy="true"><div class="blocks"></div><div class="ending open"><span class="dot running"></span></div></article>').firstElementChild;
      Object.assign(article.dataset, { turn, key: "live-" + turn, version: -1 });
      if (since < 0) $("bottom").before(article);
      r.refresh();
    }
    if (view.turn !== turn) { view.turn = turn; view.turns++; }   /* responses to earlier requests do not contain this turn */
    r.busy();
    const have = Number(article.dataset.version);
    if (since > have) { r.refresh(); return; }   /* events are missing: read the whole answer */
    if (version <= have) return;
    article.dataset.version = version;
    const container = article.querySelector(".blocks");
    for (const [index, ...rest] of blocks) {
      const existing = container.children[index];
      if (rest.length === 2) {
        if (existing) r.morphFrom(existing, rest[0], [...r.parse(rest[1]).childNodes]);
      } else {
        const fresh = r.parse(rest[0]).firstElementChild;
        if (existing) r.morphOne(existing, fresh); else container.append(fresh);
      }
    }
    while (container.children.length > count) container.lastElementChild.remove();
    if (!view.atEnd) { view.fresh = true; showEndButton("New messages"); }
  };
  r.answering = (turn) => {   /* a turn that this window requested has started */
    view.turns++;
    if (view.ended.has(turn)) return;   /* already ended */
    view.turn = turn;
    r.busy();
  };
  /* Show a message and return true if an answer is in progress, or was when the connection was lost. */
  r.isAnswering = (note = "") => {
    if (!view?.running) return false;
    r.toast((r.isOffline ? "Can't reach the server. Try again when it is back. " : "Wait for the answer or stop it. ") + note);
    return true;
  };
  r.busy = () => { if (!view.running) { view.running = true; updateState(); } };
  r.ended = ({ session, turn }) => {
    changedWhileOpening?.add(session);
    if (!view || session !== view.session) return;
    view.ended.add(turn);
    if (!view.turn || view.turn === turn) Object.assign(view, { running: false, turn: null });   /* not a late event of an earlier turn */
    updateState();
    r.refresh();
  };
  document.addEventListener("recollect:change", ({ detail }) => {
    changedWhileOpening?.add(detail.session);
    if (!view || detail.session !== view.session) return;
    /* A lower revision is possible: an erased conversation and a new one can have the same id. */
    if (detail.revision !== view.revision || detail.running !== view.running) refreshSoon();
  });
  let timer = 0;
  const refreshSoon = () => { if (!timer) timer = setTimeout(() => { timer = 0; r.refresh(); }, view?.running ? 400 : 30); };   /* milliseconds; progress events show a running answer meanwhile */
  document.addEventListener("recollect:online", () => { changedWhileOpening?.add(""); if (view) r.refresh(); $("offline")?.setAttribute("hidden", ""); });
  document.addEventListener("recollect:offline", () => $("offline")?.removeAttribute("hidden"));
  document.addEventListener("recollect:opened", () => { if (r.isOffline) $("offline")?.removeAttribute("hidden"); });

  /* --- jump to a message -------------------------------------------------------------------------------------- */
  function find(id) {
    const exact = view.list.querySelector(`[data-message="${CSS.escape(id)}"], [data-result="${CSS.escape(id)}"], [data-place^="${CSS.escape(id + ".")}"]`);
    if (exact) return exact;
    return [...view.list.querySelectorAll(":scope > [data-last]")].find((node) => position(node.dataset.message) <= position(id) && position(id) <= position(node.dataset.last));
  }
  function scrollToMessage(id) {
    const node = find(id);
    view.atEnd = false;
    if (!node) { toEnd(); return; }
    if (node.matches("details")) { node.open = true; node.setAttribute("data-touched", ""); }
    const go = () => { if (!node.isConnected) return; node.scrollIntoView({ block: "center" }); saveAnchor(); scrolled(); };
    go(); requestAnimationFrame(go);
    node.classList.add("flash");
    setTimeout(() => node.classList.remove("flash"), 1800);
  }
  r.scrollToMessage = scrollToMessage;

  /* On touch screens, a tap on a message shows its buttons. */
  document.addEventListener("click", (event) => {
    const message = event.target.closest?.("#messages .message");
    if (!message || event.target.closest("a, button, summary, input, pre") || !getSelection().isCollapsed) return;
    const wasTapped = message.classList.contains("tapped");
    for (const other of document.querySelectorAll("#messages .message.tapped")) other.classList.remove("tapped");
    message.classList.toggle("tapped", !wasTapped);
  });

  /* --- actions ---------------------------------------------------------------------------------------- */
  const act = r.actions;
  const article = (button) => button.closest("article");
  const startTurn = async (path, body) => {
    const mine = view;
    if (r.isAnswering() || mine.starting) return;
    mine.starting = true;
    let started;
    try { started = await r.send("POST", base() + path, body, idempotencyHeader()); }
    catch (error) {
      if (!r.isBusy(error)) throw error;
      r.toast(r.words(error), { action: "Fork", run: () => fork(mine.session, null).catch(r.failed), seconds: 12 });
      return;
    } finally { mine.starting = false; }
    if (view !== mine) return;
    mine.atEnd = true;
    r.answering(started.turn);
    await r.refresh();
    if (view === mine) followEnd();
  };
  const fork = async (from, message) => {
    const still = r.beginNavigation();
    const { session } = await r.send("POST", "/page/conversation/" + r.segment(from) + "/fork", { message }, idempotencyHeader());
    if (!still()) return;
    await r.open(session);
    r.toast("Forked. This copy continues on its own.");
  };
  act["copy-code"] = (button) => r.copy(button.closest(".code").querySelector("code").textContent, "Code copied");
  act["copy-words"] = (button) => r.copy(article(button).querySelector(".words")?.textContent || "");
  act["copy-answer"] = async (button) => {
    const { message, last } = article(button).dataset;
    r.copy(await r.send("GET", `${base()}/text?first=${message}&last=${last}`, undefined, { accept: "text/plain" }), "Copied as Markdown");
  };
  act.link = (button) => r.copy(location.origin + r.address(view.session, button.dataset.at), "Link copied");
  act.regenerate = (button) => startTurn("/regenerate", { message: button.dataset.at });
  act.retry = () => startTurn("/retry");
  act["carry-on"] = () => startTurn("/carry-on");
  act.fork = (button) => fork(view.session, button.dataset.at || null);
  act["pin-message"] = async (button) => {
    const pinned = !button.dataset.pinned;
    await r.send("POST", base() + "/pin-message", { message: button.dataset.at, pinned });
    await r.refresh();
  };
  act.step = async (button) => {
    if (!button.dataset.branch) return;
    if (r.isAnswering()) return;
    const messageId = article(button)?.dataset.message, mine = view;
    await r.send("POST", base() + "/switch", { branch: Number(button.dataset.branch) });
    if (view !== mine) return;
    view.element.querySelector(".elsewhere")?.remove();   /* this may be the branch that the notice is about */
    view.atEnd = false;
    saveAnchor();
    await r.refresh();
    if (view !== mine) return;
    if (!messageId) { toEnd(); r.refreshPanel(); return; }
    const target = [...view.list.querySelectorAll(".message[data-message]")].find((node) => position(node.dataset.message) >= position(messageId));
    const next = target?.querySelector(`.stepper button:not([disabled])`);
    target?.scrollIntoView({ block: "nearest" });
    (target?.querySelector(".stepper button:last-child:not([disabled])") || next)?.focus({ preventScroll: true });
  };
  act["undo-compaction"] = async (button) => {
    await r.send("POST", base() + "/undo-compaction", { round: Number(button.dataset.round) });
    r.toast("Compaction undone. The model sees the original messages again.");
    await r.refresh();
  };
  act["compaction-older"] = async (button) => {
    const html = await r.send("GET", `${base()}/fold/${button.dataset.round}?before=${button.dataset.before}`, undefined, { accept: "text/html" });
    button.replaceWith(...r.parse(html).childNodes);
  };
  document.addEventListener("toggle", async (event) => {
    const details = event.target;
    if (!details.matches?.("details.compaction") || !details.open || !view) return;
    const container = details.querySelector(".compaction-items");
    if (container.children.length || container.hasAttribute("aria-busy")) return;
    container.setAttribute("aria-busy", "true");
    try { container.innerHTML = await r.send("GET", `${base()}/fold/${details.dataset.round}`, undefined, { accept: "text/html" }); }
    catch (error) { r.failed(error); }
    container.removeAttribute("aria-busy");
  }, true);
  act["to-end"] = async () => {
    if (view.newer) { await r.open(view.session); return; }
    followEnd();
    $("below").hidden = true;
    view.fresh = false;
  };
  act["tool-panel"] = (button) => r.panel(`${base()}/tool/${button.dataset.place}`);
  act.details = () => r.panel(base() + "/details");
  act.branches = () => r.panel(base() + "/branches");
  act.compact = async () => {
    r.toast("Compacting older messages…");
    await r.send("POST", base() + "/compact", undefined, idempotencyHeader());
    await r.refresh();
    r.toast("Older messages are summarized for the model. The originals are kept.");
  };
  act.export ||= () => r.exportDialog?.(view.session);
  const change = (fields, session = view.session) => r.send("PATCH", "/page/session/" + r.segment(session), fields);
  act["pin-session"] = async (button) => { const pinned = !button.dataset.pinned; await (r.pin ? r.pin(view.session, pinned) : change({ pinned })); await r.refresh(); };
  act["archive-session"] = async (button) => { const archived = !button.dataset.archived; await (r.archive ? r.archive(view.session, archived) : change({ archived })); await r.refresh(); };
  act["delete-session"] = () => r.remove?.(view.session);
  act.models = (button) => r.menu($("model-menu"), button);
  const choose = async (model) => {
    $("model-menu").hidePopover?.();
    await r.send("POST", base() + "/model", { model });
    await r.refresh();
    r.toast(`Model changed to ${model}.`);
  };
  act["choose-model"] = (button) => choose(button.dataset.model);
  document.addEventListener("submit", (event) => {
    if (!event.target.matches?.(".model-form")) return;
    event.preventDefault();
    const name = event.target.elements.model.value.trim();
    if (name) choose(name).catch(r.failed);
  });

  act.rename = (button) => {
    const field = document.createElement("input"), { session } = view;
    field.className = "field rename";
    field.setAttribute("aria-label", "Title");
    field.maxLength = 500;
    const old = button.textContent.trim();
    field.value = old === "New chat" ? "" : old;
    field.placeholder = "New chat";
    button.hidden = true;
    button.after(field);
    field.focus(); field.select();
    let done = false;
    const end = async (save) => {
      if (done) return;
      done = true;
      const title = field.value.trim();
      field.remove();
      button.hidden = false;
      if (save && title && title !== old) {
        button.textContent = title;
        try { await change({ title }, session); } catch (error) { button.textContent = old; r.failed(error); }
      }
      r.refresh();
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") { event.preventDefault(); end(true); $("composer-text")?.focus(); }
      else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); end(false); button.focus(); }
    });
    field.addEventListener("blur", () => end(true));
  };

  r.mountConversation = mount;
})();
