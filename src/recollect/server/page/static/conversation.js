"use strict";
/* The conversation that is open: its items, its scroll position, and what can be done with them. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const MOST = 300;            /* items that are kept in the page */
  const NEAR = 48;             /* pixels from the end that still count as the end */
  const GESTURE = 1000;        /* milliseconds that a gesture may go on moving the view: a smooth scroll, a fling */
  let talk = null;             /* what is shown: session, first, last, older, newer, tags, running, atEnd */
  r.talk = () => talk;
  const base = () => "/page/conversation/" + encodeURIComponent(talk.session);
  const once = () => ({ headers: { "Idempotency-Key": r.key() } });
  const position = (id) => Number((id || "").split(".")[1]) || 0;

  /* --- opening ------------------------------------------------------------------------------------------------ */
  function mount() {
    const element = document.querySelector("#conversation > .talk");
    watcher?.disconnect(); resizer?.disconnect();
    address = location.pathname + location.search;
    if (!element) { talk = null; r.current = null; if (document.querySelector("#conversation > .begin")) first().catch(r.failed); return; }
    const data = element.dataset;
    talk = {
      element, session: data.session, first: Number(data.first), last: Number(data.last), older: !!data.older, newer: !!data.newer,
      revision: Number(data.revision), tags: new Map(Object.entries(JSON.parse(data.tags || "{}"))), running: !!data.running,
      atEnd: true, top: 0, height: 0, room: 0, touched: -GESTURE, held: false, anchor: null, list: $("messages"), scroll: $("scroll"), ended: new Set(), turn: null, turns: 0, pages: 0,
    };
    r.current = talk.session;
    document.title = data.title + " · Recollect";
    talk.scroll.addEventListener("scroll", scrolled, { passive: true });
    for (const name of ["wheel", "touchmove", "touchend"]) talk.scroll.addEventListener(name, touched, { passive: true });
    talk.scroll.addEventListener("pointerdown", () => { talk.held = true; }, { passive: true });   /* also on its scrollbar */
    resizer = new ResizeObserver(settle);
    resizer.observe(talk.list); resizer.observe(talk.scroll);
    watcher = new IntersectionObserver(reached, { root: talk.scroll, rootMargin: "1200px 0px" });
    const mine = talk;
    if (data.target) point(data.target); else { toEnd(); requestAnimationFrame(() => { if (talk === mine && mine.atEnd) toEnd(); }); }
    watcher.observe($("top"));
    watcher.observe($("bottom"));
    shown();
    r.emit("mounted", { session: talk.session });
    r.emit("opened", { session: talk.session });
    r.send("POST", base() + "/opened").catch(() => {});   /* reading changes nothing by itself */
  }
  /* There is no conversation yet: the page begins one, because looking at `/` must not. */
  async function first() {
    const { session } = await r.send("POST", "/page/new", {}, once());
    history.replaceState({ session }, "", r.address(session));
    await r.open(session, undefined, { push: false });
  }
  let watcher = null, resizer = null, opening = null, address = "";
  let heard = null;   /* the sessions that something was heard of while one is being opened: its page may be older */

  r.open = async (session, message, { push = true, focus = true } = {}) => {
    opening?.abort();
    r.wishing();
    const abort = opening = new AbortController(), since = heard = new Set();
    const main = $("conversation");
    const slow = setTimeout(() => main.classList.add("loading"), 200);
    try {
      const url = "/page/conversation/" + encodeURIComponent(session) + (message ? "?m=" + encodeURIComponent(message) : "");
      const read = () => r.send("GET", url, undefined, { accept: "text/html", signal: abort.signal });
      let html = await read();
      if (push && message && html.includes('<section class="elsewhere"') && !abort.signal.aborted) {   /* a person has chosen this message */
        await r.send("POST", "/page/conversation/" + encodeURIComponent(session) + "/show", { message }, { signal: abort.signal });
        html = await read();
      }
      if (abort.signal.aborted) return;
      r.emit("leaving", { session: r.current });
      if (push && decodeURIComponent(location.pathname + location.search) !== decodeURIComponent(r.address(session, message)))
        history.pushState({ session }, "", r.address(session, message));
      r.panel(null);
      main.innerHTML = html;
      window.htmx?.process(main);
      r.drawer(false);
      mount();
      if (since.has(session) || since.has("")) r.refresh();
      if (focus && !r.narrow() && !document.querySelector("dialog[open]")) $("composer-text").focus({ preventScroll: true });
    } catch (error) { r.failed(error); throw error; } finally {
      clearTimeout(slow);
      if (opening === abort) { main.classList.remove("loading"); heard = null; }
    }
  };
  addEventListener("popstate", () => {
    if (location.pathname + location.search === address) return;   /* a place in this page, such as the skip link's */
    const path = location.pathname.match(/^\/c\/([^/]+)$/);
    if (path) r.open(decodeURIComponent(path[1]), new URLSearchParams(location.search).get("m"), { push: false }).catch(() => {});
    else location.reload();
  });
  r.actions["show-message"] = (button) => r.open(talk.session, button.dataset.message);
  r.actions["hide-message"] = () => { talk.element.querySelector(".elsewhere")?.remove(); $("composer-text").focus({ preventScroll: true }); };
  r.actions["open-session"] = (link) => r.open(link.dataset.session);

  /* --- the scroll position ------------------------------------------------------------------------------------- */
  const distance = () => talk.scroll.scrollHeight - talk.scroll.scrollTop - talk.scroll.clientHeight;
  function toEnd() { if (talk) { talk.atEnd = true; move(talk.scroll.scrollHeight); } }
  function follow() { talk.touched = -GESTURE; toEnd(); }   /* asked for: a gesture from before it is over */
  function move(to) { talk.scroll.scrollTop = to; placed(); }
  function placed() { talk.top = talk.scroll.scrollTop; talk.height = talk.scroll.scrollHeight; talk.room = talk.scroll.clientHeight; }
  function touched() { if (talk) talk.touched = performance.now(); }
  const UPWARDS = ["PageUp", "Home", "ArrowUp", " "];
  document.addEventListener("keydown", ({ key, target }) => { if (UPWARDS.includes(key) && !target.matches?.("input, textarea")) touched(); });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { if (talk?.held) { talk.held = false; touched(); } }, { passive: true });
  /* A person has scrolled and the event of it comes with the next frame: what is done before that must not undo it. */
  function notice() { if (Math.abs(talk.scroll.scrollTop - talk.top) > 1) scrolled(); }
  function hold() {
    /* Remember what stands at the top of the view, so that it can stay there whatever happens above it. */
    const edge = talk.scroll.getBoundingClientRect().top;
    talk.anchor = null;
    for (const node of talk.list.children) {
      if (!node.dataset.key || node.dataset.key.startsWith("day-")) continue;   /* a day moves when what is older comes */
      const box = node.getBoundingClientRect();
      if (box.bottom > edge && box.height) { talk.anchor = { node, top: box.top - edge }; break; }
    }
  }
  /* Whether the view was moved up on purpose. Content that grows never moves it up. Content that shrinks, and a view that
     grows, can: where either has changed since the view was placed, only a gesture tells. Where nothing has, it was someone
     (a person, the browser's search, an assistive tool). */
  function isMovedUp() {
    if (talk.scroll.scrollTop >= talk.top - 1) return false;
    const same = talk.scroll.scrollHeight === talk.height && talk.scroll.clientHeight === talk.room;
    return same || talk.held || performance.now() - talk.touched < GESTURE;
  }
  function scrolled() {
    if (!talk) return;
    /* To be at the end is an intention: only someone who scrolls gives it up, never a picture that is loaded late. */
    if (distance() < NEAR && !talk.newer) talk.atEnd = true;
    else if (talk.newer || isMovedUp()) talk.atEnd = false;
    placed();
    hold();
    if (talk.atEnd) $("below").hidden = true;
    else if (distance() > 600 || talk.newer) below(talk.fresh ? "New messages" : "To the end");
  }
  function below(words) {
    $("below").hidden = false;
    $("below").querySelector("span").textContent = words;
  }
  function settle() {
    /* Called after every change of size, before it is painted. */
    if (!talk) return;
    if (talk.atEnd) { toEnd(); return; }
    const anchor = talk.anchor;
    if (!anchor?.node.isConnected) return;
    const top = anchor.node.getBoundingClientRect().top - talk.scroll.getBoundingClientRect().top;
    if (Math.abs(top - anchor.top) > 0.5) move(talk.scroll.scrollTop + top - anchor.top);
  }
  function reached(entries) {
    for (const entry of entries) {
      if (!entry.isIntersecting || !talk) continue;
      if (entry.target.id === "top" && talk.older) page("older");
      if (entry.target.id === "bottom" && talk.newer) page("newer");
    }
  }
  /* An observer tells what changes: an end that came near when nothing could be done about it is looked at again. */
  function look() {
    if (!talk?.older && !talk?.newer) return;
    for (const node of [$("top"), $("bottom")]) { watcher.unobserve(node); watcher.observe(node); }
  }

  async function page(want) {
    const mine = talk, { first, last } = mine;
    if (mine.paging) return;
    mine.paging = true;
    let failed = false;
    try {
      const given = await r.send("POST", base() + "/items", { want, first, last });
      if (talk !== mine) return;
      if (given.gone) { await gone(given); return; }
      if (want === "older" ? first !== mine.first : last !== mine.last) return;   /* what it adjoins is another place by now */
      mine.pages++;
      notice(); hold();
      const known = new Map([...mine.list.children].map((node) => [node.dataset.key, node]));
      const nodes = [];
      for (const [key, tag, html] of given.items) {
        const there = known.get(key);
        if (there && !key.startsWith("day-")) continue;
        if (there && want === "older") there.remove();
        if (there && want === "newer") continue;
        mine.tags.set(key, tag);
        nodes.push(r.parse(html).firstElementChild);
      }
      if (want === "older") {
        mine.first = Math.min(given.first, mine.first); mine.older = given.older && given.items.length > 0;
        mine.list.querySelector("#top").after(...nodes);
      } else {
        mine.last = Math.max(given.last, mine.last); mine.newer = given.newer;
        mine.list.querySelector("#bottom").before(...nodes);
      }
      trim(want === "older");
      settle(); hold();
      if (given.revision < mine.revision) r.refresh();   /* it was read before what is shown beside it */
    } catch (error) { failed = true; if (!error.offline) r.failed(error); }
    finally {
      mine.paging = false;
      if (talk === mine && !mine.element.classList.contains("gone")) { if (failed) setTimeout(look, 3000); else requestAnimationFrame(look); }
    }
  }

  function trim(below) {
    /* Let go of what is far away; it is loaded again when it is near. */
    const items = talk.list.querySelectorAll(":scope > [data-key]");
    let much = items.length - MOST;
    if (much <= 0) return;
    const all = [...items];
    if (below) {
      while (much-- > 0) { const node = all.pop(); talk.tags.delete(node.dataset.key); node.remove(); }
      while (all.length && !all.at(-1).dataset.message) { const node = all.pop(); talk.tags.delete(node.dataset.key); node.remove(); }
      talk.last = position(all.at(-1)?.dataset.last || all.at(-1)?.dataset.message); talk.newer = true;
    } else {
      while (much-- > 0) { const node = all.shift(); talk.tags.delete(node.dataset.key); node.remove(); }
      while (all.length && !all[0].dataset.message) { const node = all.shift(); talk.tags.delete(node.dataset.key); node.remove(); }
      talk.first = position(all[0]?.dataset.message); talk.older = talk.first > 1;
    }
  }

  /* --- keeping in step ----------------------------------------------------------------------------------------- */
  let refreshing = null, following = null;
  r.refresh = () => {
    if (!refreshing) return refreshing = refresh().finally(() => { refreshing = null; });
    /* What was asked may be older than what is wanted: who asks meanwhile waits for the next answer. */
    return following ||= refreshing.catch(() => {}).then(() => { following = null; return r.refresh(); });
  };
  async function refresh() {
    const mine = talk;
    if (!mine) return;
    const have = Object.fromEntries(mine.tags);
    const over = new Set(mine.ended), { turns, pages } = mine;
    let given;
    try { given = await r.send("POST", base() + "/items", { first: mine.first, last: mine.newer ? mine.last : null, have }); }
    catch (error) { if (!error.offline) r.failed(error); return; }
    if (talk !== mine) return;
    if (given.gone) { await gone(given).catch(r.failed); return; }
    if (pages !== mine.pages) { r.refresh(); return; }   /* more is shown than was asked about */
    const { running, turn } = mine;
    reconcile(given, over);
    if (turns !== mine.turns) { Object.assign(mine, { running, turn }); r.refresh(); shown(); }   /* a turn began while this was asked */
    r.emit("refreshed", { session: mine.session });
    if (!$("panel").hidden) await r.refreshPanel();
  }
  async function gone({ gone: how }) {
    /* Deleted or erased by someone else: say so, and go on with the next one. What was typed is not lost. */
    const { session, element } = talk, typed = $("composer-text").value;
    const title = element.querySelector(".title button").textContent.trim();
    if (element.classList.contains("gone")) return;
    element.classList.add("gone");
    if (!$("panel").hidden) r.panel(null);
    const restore = async () => { await r.send("POST", "/page/session/" + encodeURIComponent(session) + "/restore"); await r.open(session); };
    if (how === "trash") r.toast(`“${title}” was deleted elsewhere.`, { action: "Restore", run: () => restore().catch(r.failed), seconds: 12 });
    else r.toast(`“${title}” was erased elsewhere.`, { seconds: 12 });
    if (how === "trash" || !typed.trim()) { await r.openNext(session); return; }
    r.keep(await r.begin(), typed);
  }

  function reconcile(given, over) {
    const before = talk.last, list = talk.list;
    notice(); hold();
    const known = new Map([...list.children].filter((node) => node.dataset.key).map((node) => [node.dataset.key, node]));
    const live = new Map([...list.querySelectorAll(":scope > .live")].map((node) => [node.dataset.turn, node]));
    /* An answer that has just been stored takes the place of what was shown of it while it came. */
    const items = given.items.map(([key, tag, html]) => {
      const made = html === null ? null : r.parse(html).firstElementChild;
      const turn = made?.dataset.turn;
      if (turn && !known.has(key) && live.has(turn) && !key.startsWith("live-")) {
        const node = live.get(turn);
        live.delete(turn);
        known.delete("live-" + turn);
        node.dataset.key = key;
        known.set(key, node);
      }
      return { key, tag, made };
    });
    /* What is gone is removed first: what stays need not be moved then, and keeps its selection. */
    const keys = new Set(items.map((item) => item.key));
    for (const [key, node] of known) {
      if (keys.has(key) || (key.startsWith("live-") && !over.has(node.dataset.turn))) continue;
      node.remove();
    }
    talk.tags = new Map();
    let last = $("top");
    for (const { key, tag, made } of items) {
      let node = known.get(key);
      const ahead = key.startsWith("live-") && Number(node?.dataset.version) >= Number(made?.dataset.version);
      if (made && !ahead) node = node ? r.morphOne(node, made) : made;
      if (!node) { r.refresh(); continue; }
      talk.tags.set(key, tag);
      if (last.nextElementSibling !== node) last.after(node);
      last = node;
    }
    const running = !!given.turn && !talk.ended.has(given.turn);
    Object.assign(talk, { revision: given.revision, first: given.first, last: given.last, older: given.older, newer: given.newer, running, turn: running ? given.turn : null });
    if (given.last > before && !talk.atEnd) { talk.fresh = true; below("New messages"); }
    heading(given);
    if (!talk.newer) trim(!talk.atEnd && talk.scroll.scrollTop < distance());   /* not what is being read */
    settle();
    shown();
    look();
  }
  function heading(given) {
    const head = talk.element.querySelector(".page-head");
    document.title = given.title + " · Recollect";
    talk.late = !!head.querySelector(":popover-open, .rename");   /* it is drawn when that is closed */
    if (given.header && !talk.late) r.morph(head, given.header);
  }
  document.addEventListener("toggle", (event) => { if (event.newState === "closed" && talk?.late && event.target.matches?.("[popover]")) r.refresh(); }, true);
  function shown() {
    /* What follows from the state: the empty page, Send or Stop. */
    $("empty").hidden = !!talk.list.querySelector(":scope > [data-key]");
    talk.element.classList.toggle("running", talk.running);
    $("send").hidden = talk.running;
    $("stop").hidden = !talk.running;
    if (talk.atEnd) talk.fresh = false;
  }
  /* An answer as it comes: blocks by their place; of a text, the elements after those that stay. */
  r.progress = ({ session, turn, since, version, count, blocks }) => {
    if (!talk || session !== talk.session || talk.newer || talk.ended.has(turn)) return;
    let article = talk.list.querySelector(`:scope > .live[data-turn="${CSS.escape(turn)}"]`);
    if (!article) {
      if (talk.list.querySelector(`:scope > .assistant[data-turn="${CSS.escape(turn)}"]`)) return;   /* it is stored already */
      article = r.parse('<article class="message assistant live" aria-label="Agent" aria-busy="true"><div class="blocks"></div><div class="ending open"><span class="dot running"></span></div></article>').firstElementChild;
      Object.assign(article.dataset, { turn, key: "live-" + turn, version: -1 });
      if (since < 0) $("bottom").before(article);
      r.refresh();
    }
    if (talk.turn !== turn) { talk.turn = turn; talk.turns++; }   /* what was asked before it began does not know of it */
    r.busy();
    const have = Number(article.dataset.version);
    if (since > have) { r.refresh(); return; }   /* what lies between was told before this was shown: all of it is read */
    if (version <= have) return;
    article.dataset.version = version;
    const place = article.querySelector(".blocks");
    for (const [index, ...rest] of blocks) {
      const there = place.children[index];
      if (rest.length === 2) {
        if (there) r.morphFrom(there, rest[0], [...r.parse(rest[1]).childNodes]);
      } else {
        const made = r.parse(rest[0]).firstElementChild;
        if (there) r.morphOne(there, made); else place.append(made);
      }
    }
    while (place.children.length > count) place.lastElementChild.remove();
    if (!talk.atEnd) { talk.fresh = true; below("New messages"); }
  };
  r.answering = (turn) => {   /* a turn has begun that was asked for here */
    talk.turns++;
    if (talk.ended.has(turn)) return;   /* and is over already */
    talk.turn = turn;
    r.busy();
  };
  /* Say that an answer is in progress, or was when the server was last heard. */
  r.isAnswering = (besides = "") => {
    if (!talk?.running) return false;
    r.toast((r.isOffline ? "The server cannot be reached. Try again when it is back. " : "Wait for the answer, or stop it. ") + besides);
    return true;
  };
  r.busy = () => { if (!talk.running) { talk.running = true; shown(); } };
  r.ended = ({ session, turn }) => {
    heard?.add(session);
    if (!talk || session !== talk.session) return;
    talk.ended.add(turn);
    if (!talk.turn || talk.turn === turn) Object.assign(talk, { running: false, turn: null });   /* not that of an earlier one, told late */
    shown();
    r.refresh();
  };
  document.addEventListener("recollect:change", ({ detail }) => {
    heard?.add(detail.session);
    if (!talk || detail.session !== talk.session) return;
    /* A lower revision may be that of another conversation, which has the name of one that was erased. */
    if (detail.revision !== talk.revision || detail.running !== talk.running) soon();
  });
  let timer = 0;
  const soon = () => { if (!timer) timer = setTimeout(() => { timer = 0; r.refresh(); }, talk?.running ? 400 : 30); };
  document.addEventListener("recollect:online", () => { heard?.add(""); if (talk) r.refresh(); $("offline")?.setAttribute("hidden", ""); });
  document.addEventListener("recollect:offline", () => $("offline")?.removeAttribute("hidden"));
  document.addEventListener("recollect:opened", () => { if (r.isOffline) $("offline")?.removeAttribute("hidden"); });

  /* --- going to a message -------------------------------------------------------------------------------------- */
  function find(id) {
    const exact = talk.list.querySelector(`[data-message="${CSS.escape(id)}"], [data-result="${CSS.escape(id)}"], [data-place^="${CSS.escape(id + ".")}"]`);
    if (exact) return exact;
    return [...talk.list.querySelectorAll(":scope > [data-last]")].find((node) => position(node.dataset.message) <= position(id) && position(id) <= position(node.dataset.last));
  }
  function point(id) {
    const node = find(id);
    talk.atEnd = false;
    if (!node) { toEnd(); return; }
    if (node.matches("details")) { node.open = true; node.setAttribute("data-touched", ""); }
    const go = () => { if (!node.isConnected) return; node.scrollIntoView({ block: "center" }); hold(); scrolled(); };
    go(); requestAnimationFrame(go);
    node.classList.add("flash");
    setTimeout(() => node.classList.remove("flash"), 1800);
  }
  r.point = point;

  /* Where nothing hovers, a tap on a message shows what can be done with it. */
  document.addEventListener("click", (event) => {
    const message = event.target.closest?.("#messages .message");
    if (!message || event.target.closest("a, button, summary, input, pre") || !getSelection().isCollapsed) return;
    const was = message.classList.contains("tapped");
    for (const other of document.querySelectorAll("#messages .message.tapped")) other.classList.remove("tapped");
    message.classList.toggle("tapped", !was);
  });

  /* --- what can be done ---------------------------------------------------------------------------------------- */
  const act = r.actions;
  const article = (button) => button.closest("article");
  const begin = async (path, body) => {
    const mine = talk;
    if (r.isAnswering() || mine.beginning) return;
    mine.beginning = true;
    let begun;
    try { begun = await r.send("POST", base() + path, body, once()); }
    catch (error) {
      if (!r.isBusy(error)) throw error;
      r.toast(r.words(error), { action: "Fork", run: () => fork(mine.session, null).catch(r.failed), seconds: 12 });
      return;
    } finally { mine.beginning = false; }
    if (talk !== mine) return;
    mine.atEnd = true;
    r.answering(begun.turn);
    await r.refresh();
    if (talk === mine) follow();
  };
  const fork = async (from, message) => {
    const still = r.wishing();
    const { session } = await r.send("POST", "/page/conversation/" + encodeURIComponent(from) + "/fork", { message }, once());
    if (!still()) return;
    await r.open(session);
    r.toast("A fork: it shares the past, and goes its own way from here.");
  };
  act["copy-code"] = (button) => r.copy(button.closest(".code").querySelector("code").textContent, "Code copied");
  act["copy-words"] = (button) => r.copy(article(button).querySelector(".words")?.textContent || "");
  act["copy-answer"] = async (button) => {
    const { message, last } = article(button).dataset;
    r.copy(await r.send("GET", `${base()}/text?first=${message}&last=${last}`, undefined, { accept: "text/plain" }), "Copied as Markdown");
  };
  act.link = (button) => r.copy(location.origin + r.address(talk.session, button.dataset.at), "Link copied");
  act.regenerate = (button) => begin("/regenerate", { message: button.dataset.at });
  act.retry = () => begin("/retry");
  act["carry-on"] = () => begin("/carry-on");
  act.fork = (button) => fork(talk.session, button.dataset.at || null);
  act["pin-message"] = async (button) => {
    const pinned = !button.dataset.pinned;
    await r.send("POST", base() + "/pin-message", { message: button.dataset.at, pinned });
    await r.refresh();
  };
  act.step = async (button) => {
    if (!button.dataset.branch) return;
    if (r.isAnswering()) return;
    const place = article(button)?.dataset.message, mine = talk;
    await r.send("POST", base() + "/switch", { branch: Number(button.dataset.branch) });
    if (talk !== mine) return;
    talk.element.querySelector(".elsewhere")?.remove();   /* the branch that it speaks of may be this one now */
    talk.atEnd = false;
    hold();
    await r.refresh();
    if (talk !== mine) return;
    if (!place) { toEnd(); r.refreshPanel(); return; }
    const same = [...talk.list.querySelectorAll(".message[data-message]")].find((node) => position(node.dataset.message) >= position(place));
    const next = same?.querySelector(`.stepper button:not([disabled])`);
    same?.scrollIntoView({ block: "nearest" });
    (same?.querySelector(".stepper button:last-child:not([disabled])") || next)?.focus({ preventScroll: true });
  };
  act.unfold = async (button) => {
    await r.send("POST", base() + "/undo-compaction", { round: Number(button.dataset.round) });
    r.toast("All of it is sent to the model again.");
    await r.refresh();
  };
  act["fold-older"] = async (button) => {
    const html = await r.send("GET", `${base()}/fold/${button.dataset.round}?before=${button.dataset.before}`, undefined, { accept: "text/html" });
    button.replaceWith(...r.parse(html).childNodes);
  };
  document.addEventListener("toggle", async (event) => {
    const fold = event.target;
    if (!fold.matches?.("details.fold") || !fold.open || !talk) return;
    const place = fold.querySelector(".fold-items");
    if (place.children.length || place.hasAttribute("aria-busy")) return;
    place.setAttribute("aria-busy", "true");
    try { place.innerHTML = await r.send("GET", `${base()}/fold/${fold.dataset.round}`, undefined, { accept: "text/html" }); }
    catch (error) { r.failed(error); }
    place.removeAttribute("aria-busy");
  }, true);
  act["to-end"] = async () => {
    if (talk.newer) { await r.open(talk.session); return; }
    follow();
    $("below").hidden = true;
    talk.fresh = false;
  };
  act["tool-panel"] = (button) => r.panel(`${base()}/tool/${button.dataset.place}`);
  act.details = () => r.panel(base() + "/details");
  act.branches = () => r.panel(base() + "/branches");
  act.compact = async () => {
    r.toast("Summing up what is old…");
    await r.send("POST", base() + "/compact", undefined, once());
    await r.refresh();
    r.toast("What is old is summed up for the model. All of it is kept.");
  };
  act.export ||= () => r.exportDialog?.(talk.session);
  const change = (fields, session = talk.session) => r.send("PATCH", "/page/session/" + encodeURIComponent(session), fields);
  act["pin-session"] = async (button) => { const pinned = !button.dataset.pinned; await (r.pin ? r.pin(talk.session, pinned) : change({ pinned })); await r.refresh(); };
  act["archive-session"] = async (button) => { const archived = !button.dataset.archived; await (r.archive ? r.archive(talk.session, archived) : change({ archived })); await r.refresh(); };
  act["delete-session"] = () => r.remove?.(talk.session);
  act.models = (button) => r.menu($("model-menu"), button);
  const choose = async (model) => {
    $("model-menu").hidePopover?.();
    await r.send("POST", base() + "/model", { model });
    await r.refresh();
    r.toast(`The model is ${model} from now on.`);
  };
  act["choose-model"] = (button) => choose(button.dataset.model);
  document.addEventListener("submit", (event) => {
    if (!event.target.matches?.(".model-form")) return;
    event.preventDefault();
    const name = event.target.elements.model.value.trim();
    if (name) choose(name).catch(r.failed);
  });

  act.rename = (button) => {
    const field = document.createElement("input"), { session } = talk;
    field.className = "field rename";
    field.setAttribute("aria-label", "Title");
    field.maxLength = 500;
    const old = button.textContent.trim();
    field.value = old === "New chat" ? "" : old;
    field.placeholder = "New chat";
    button.hidden = true;
    button.after(field);
    field.focus(); field.select();
    let over = false;
    const end = async (save) => {
      if (over) return;
      over = true;
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

  r.begun = begin;
  r.mountConversation = mount;
})();
