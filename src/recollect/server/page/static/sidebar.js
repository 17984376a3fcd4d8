"use strict";
/* The sidebar: rows, their actions, and live updates. */
(() => {
  const r = window.recollect;
  const list = document.getElementById("sessions");
  if (!list) return;
  const byId = (id) => list.querySelector(`li.session[data-id="${CSS.escape(r.toAttribute(id))}"]`);
  const filter = { view: "", channel: "", model: "" };
  const setCookie = (name, value) => { document.cookie = `${name}=${encodeURIComponent(value)}; path=/; max-age=31536000; samesite=strict`; };
  r.remember = setCookie;
  r.current ??= r.fromAttribute(list.dataset.current) || null;
  const idOf = (row) => r.fromAttribute(row.dataset.id);
  const show = (id, message) => r.open ? r.open(id, message) : location.assign(r.address(id, message));
  const path = (id, rest = "") => "/page/session/" + r.segment(id) + rest;

  /* Keyboard navigation: one row is a tab stop, the arrow keys move between rows. */
  const links = () => [...list.querySelectorAll("a.session-link")];
  function setTabStop(link) {
    for (const other of list.querySelectorAll('a.session-link[tabindex="0"], .session-more[tabindex="0"], .session-toggle[tabindex="0"]')) other.tabIndex = -1;
    if (!link) return;
    link.tabIndex = 0;
    for (const button of link.parentElement.querySelectorAll(":scope > button")) button.tabIndex = 0;
  }
  const ensureReachable = () => { if (!list.querySelector('a.session-link[tabindex="0"]')) setTabStop(list.querySelector("a[aria-current]") || list.querySelector("a.session-link")); };
  function mark(id) {
    for (const link of list.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
    const link = id && byId(id)?.querySelector(":scope > a");
    if (link) { link.setAttribute("aria-current", "page"); if (!list.contains(document.activeElement)) setTabStop(link); }
  }
  list.addEventListener("focusin", (event) => { const row = event.target.closest("li.session"); const link = row?.querySelector(":scope > a"); if (link) setTabStop(link); });

  /* Responses are applied in the order of their requests, so that an older one never replaces a newer one. */
  let reading = Promise.resolve();
  function inOrder(read) { const mine = reading.then(read); reading = mine.catch(() => {}); return mine; }

  /* Pages: the next one is loaded before it comes into view. */
  const observer = new IntersectionObserver((entries) => { for (const entry of entries) if (entry.isIntersecting) more(entry.target); }, { root: list, rootMargin: "900px 0px" });
  const more = (mark) => { observer.unobserve(mark); return inOrder(() => next(mark)); };
  async function next(mark) {
    if (!mark.isConnected) return;
    try {
      const html = await r.send("GET", mark.dataset.url, undefined, { accept: "text/html" });
      if (!mark.isConnected) return;
      mark.remove();
      appendPage(r.parse(html));
    } catch (error) {
      if (!mark.isConnected) return;
      const retry = document.createElement("button");
      retry.className = "button compact"; retry.type = "button"; retry.textContent = "Load more";
      retry.addEventListener("click", () => { retry.remove(); more(mark); });
      mark.append(retry);
      r.failed(error);
    }
  }
  function appendPage(piece) {
    const known = new Map();  /* one pass over the list, not one per row */
    for (const row of list.querySelectorAll("li.session")) known.set(idOf(row), row);
    for (const section of piece.querySelectorAll("section.session-group")) {
      for (const row of section.querySelectorAll("li.session")) known.get(idOf(row))?.remove();
      const existing = list.querySelector(`section[data-group="${CSS.escape(section.dataset.group)}"]`);
      if (existing) existing.querySelector("ul").append(...section.querySelector("ul").children);
      else list.append(section);
    }
    for (const rest of piece.querySelectorAll(".sessions-more, .sessions-empty")) list.append(rest);
    watchMore();
    tidy();
    mark(r.current);
    ensureReachable();
  }
  const watchMore = () => { const mark = list.querySelector(".sessions-more"); if (mark) observer.observe(mark); };
  const query = () => new URLSearchParams(Object.entries(filter).filter(([, value]) => value));
  let asked = 0;
  const reload = () => { const mine = ++asked; return inOrder(() => reloadNow(mine)); };
  let postponed = false;   /* reload later: a title is being edited */
  async function reloadNow(mine) {
    if (mine !== asked) return;
    const html = await r.send("GET", "/page/sessions?" + query(), undefined, { accept: "text/html" });
    if (mine !== asked) return;
    postponed = !!list.querySelector(".renaming");
    if (postponed) return;
    const at = list.scrollTop, focused = list.contains(document.activeElement) && r.fromAttribute(document.activeElement.closest("li.session")?.dataset.id);
    list.replaceChildren();
    appendPage(r.parse(html));
    list.scrollTop = at;
    if (focused) byId(focused)?.querySelector(":scope > a")?.focus({ preventScroll: true });
    if (r.current && !byId(r.current)) touch(r.current);
  }
  r.reloadSessions = () => reload().catch(r.failed);

  /* Updates: changed rows are read together, and move to their new position unless the pointer is over the list. */
  const rank = (group) => ({ open: "", pinned: "0", today: "1", yesterday: "2", week: "3" })[group] ?? "4" + (999999 - Number(group.replace("-", "")));
  function section(group, label) {
    const existing = list.querySelector(`section[data-group="${CSS.escape(group)}"]`);
    if (existing) return existing;
    const created = document.createElement("section");
    created.className = "session-group"; created.setAttribute("role", "group"); created.dataset.group = group; created.setAttribute("aria-label", label);
    const head = document.createElement("h2");
    head.className = "session-heading"; head.textContent = label;
    created.append(head, document.createElement("ul"));
    const after = [...list.querySelectorAll("section.session-group")].find((other) => rank(other.dataset.group) > rank(group));
    list.insertBefore(created, after || list.querySelector(".sessions-more"));
    return created;
  }
  function tidy() {
    for (const empty of list.querySelectorAll("section.session-group")) if (!empty.querySelector("li")) empty.remove();
    if (list.querySelector("li.session")) list.querySelector(".sessions-empty")?.remove();
  }
  function moveIntoOrder(row) {
    const at = Number(row.dataset.at);
    const apart = row.closest('section[data-group="open"]');
    if ((!row.isConnected || apart) && row.dataset.group !== "pinned" && list.querySelector(".sessions-more")) {
      const loaded = [...list.querySelectorAll("section:not([data-group=pinned], [data-group=open]) > ul > li.session")].pop();
      if (!loaded || at < Number(loaded.dataset.at)) {  /* its page is not loaded yet */
        if (idOf(row) === r.current && !apart) section("open", "Current").querySelector("ul").replaceChildren(row);
        return;
      }
    }
    const focused = row.contains(document.activeElement) ? document.activeElement : null;
    const home = section(row.dataset.group, row.dataset.label).querySelector("ul");
    const next = [...home.children].find((other) => other !== row && Number(other.dataset.at) < at) || null;
    if (row.parentElement !== home || row.nextElementSibling !== next) home.insertBefore(row, next);
    focused?.focus({ preventScroll: true });
    tidy();
  }
  const waiting = new Set(), deleting = new Set();   /* rows to move later; rows being deleted */
  const isHovered = () => list.matches(":hover") && matchMedia("(hover: hover)").matches;
  function update(fresh, force) {
    const row = byId(idOf(fresh));
    if (deleting.has(idOf(fresh))) return;
    if (row?.closest("ul")?.closest("li.session")) { swap(row, fresh); return; }  /* a sub-agent stays below its parent */
    if (row) swap(row, fresh);
    if (row && row.dataset.group === row.closest("section").dataset.group && isInOrder(row)) return;
    if (row?.classList.contains("renaming") || (isHovered() && !force)) { waiting.add(idOf(fresh)); return; }
    moveIntoOrder(row || fresh);
    if (!row) ensureReachable();
  }
  function isInOrder(row) {
    const at = Number(row.dataset.at), before = row.previousElementSibling, after = row.nextElementSibling;
    return (!before || Number(before.dataset.at) >= at) && (!after || Number(after.dataset.at) <= at);
  }
  function swap(row, fresh) {
    for (const name of ["data-color", "data-running", "data-pinned", "data-archived", "data-at", "data-group", "data-label"])
      fresh.hasAttribute(name) ? row.setAttribute(name, fresh.getAttribute(name)) : row.removeAttribute(name);
    const link = row.querySelector(":scope > .session-link"), other = fresh.querySelector(":scope > .session-link");
    if (link && other && link.innerHTML !== other.innerHTML) link.innerHTML = other.innerHTML;
    const button = row.querySelector(":scope > .session-more");
    if (button) button.setAttribute("aria-label", fresh.querySelector(":scope > .session-more").getAttribute("aria-label"));
    const toggle = row.querySelector(":scope > .session-toggle"), freshToggle = fresh.querySelector(":scope > .session-toggle");
    if (freshToggle && !toggle) row.insertBefore(freshToggle, row.querySelector(":scope > ul"));
    else if (freshToggle && toggle.textContent !== freshToggle.textContent) toggle.replaceChildren(...freshToggle.childNodes);
  }
  const changed = new Set();
  let timer = 0;
  function updateSoon() { if (!timer) timer = setTimeout(updateNow, 250); }
  function updateNow(force = false) { clearTimeout(timer); timer = 0; return inOrder(() => updateRows(force)); }
  async function updateRows(force) {
    const ids = [...changed].slice(0, 50);
    for (const id of ids) changed.delete(id);
    if (!ids.length || filter.view === "trash") { if (ids.length) r.reloadSessions(); return; }
    try {
      const asked = query();
      for (const id of ids) asked.append("id", id);
      const piece = r.parse(await r.send("GET", "/page/rows?" + asked, undefined, { accept: "text/html" }));
      const fresh = new Map([...piece.querySelectorAll("li.session")].map((row) => [idOf(row), row]));
      for (const id of ids) {
        if (fresh.has(id)) update(fresh.get(id), force);
        else {
          const row = byId(id);
          if (id === r.current) lastNeighbor = { of: id, next: neighbor(id) };
          if (row && !row.closest("ul").closest("li.session")) { moveFocusFrom(row); row.remove(); tidy(); }
        }
      }
      mark(r.current);
      ensureReachable();
    } catch (error) {
      if (!error.offline) throw error;
      for (const id of ids) changed.add(id);
    } finally { if (changed.size) updateSoon(); }
  }
  function moveFocusFrom(row) {
    /* Move the focus to the neighbor of a row that is removed. */
    if (!row.contains(document.activeElement)) return;
    const all = links(), at = all.indexOf(row.querySelector(":scope > a"));
    (all[at + 1] || all[at - 1] || document.querySelector('#sidebar [data-do="new"]'))?.focus({ preventScroll: true });
  }
  function touch(id, force) { changed.add(id); if (force) return updateNow(true); updateSoon(); return undefined; }
  document.addEventListener("recollect:change", (event) => {
    const { session, running } = event.detail || {};
    if (!session) return;
    const row = byId(session);
    if (row && running !== undefined && running !== row.hasAttribute("data-running")) row.toggleAttribute("data-running", running);
    touch(session);
  });
  document.addEventListener("recollect:online", () => r.reloadSessions());
  document.addEventListener("recollect:opened", (event) => {
    r.current = event.detail.session;
    document.querySelector(".sidebar-foot [aria-current]")?.removeAttribute("aria-current");
    for (const row of list.querySelectorAll('section[data-group="open"] > ul > li.session')) if (idOf(row) !== r.current) row.remove();
    tidy();
    mark(r.current);
    if (!byId(r.current)) touch(r.current, true);
    if (r.narrow() && document.body.classList.contains("drawer")) r.drawer(false);
  });
  list.addEventListener("pointerleave", () => { for (const id of waiting) { const row = byId(id); row ? moveIntoOrder(row) : touch(id); } waiting.clear(); });

  /* Update relative times. */
  let day = new Date().toDateString();
  setInterval(() => {
    if (new Date().toDateString() !== day) { day = new Date().toDateString(); r.reloadSessions(); return; }
    const now = Date.now();
    for (const row of list.querySelectorAll('section[data-group="today"] li, section[data-group="pinned"] li')) {
      const passed = now - Number(row.dataset.at), time = row.querySelector(".session-note time");
      if (!time || passed >= 86400000 || new Date(Number(row.dataset.at)).toDateString() !== day) continue;
      const text = passed < 60000 ? "now" : passed < 3600000 ? Math.floor(passed / 60000) + " min ago" : Math.floor(passed / 3600000) + " h ago";
      if (time.textContent !== text) time.textContent = text;
    }
  }, 30000);

  /* Row actions. */
  const titleOf = (row) => row?.querySelector(":scope > .session-link .session-title")?.textContent || "the conversation";
  const rowOf = (thing) => thing.closest("li.session");
  async function alter(id, fields) {
    await r.send("PATCH", path(id), fields);
    await touch(id, true);
    r.emit("renamed", { session: id, ...fields });
  }
  r.actions.session = (link) => show(idOf(rowOf(link)));
  r.actions.search = () => r.search?.();
  r.actions["toggle-delegates"] = async (button) => {
    const row = rowOf(button), open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    row.querySelector(":scope > ul")?.remove();
    if (open) return;
    const html = await r.send("GET", "/page/children/" + r.segment(idOf(row)), undefined, { accept: "text/html" });
    const children = document.createElement("ul");
    children.append(...r.parse(html).querySelectorAll("li.session"));
    if (button.getAttribute("aria-expanded") === "true") { row.querySelector(":scope > ul")?.remove(); row.append(children); mark(r.current); }
  };

  r.rename = (id) => {
    const row = byId(id);
    if (!row || row.classList.contains("renaming")) return;
    const field = document.createElement("input");
    field.className = "field session-rename"; field.maxLength = 500; field.setAttribute("aria-label", "Title");
    const old = row.querySelector(".session-title");
    field.value = old.classList.contains("untitled") ? "" : old.textContent;
    row.classList.add("renaming");
    row.prepend(field);
    field.focus();
    field.select();
    let done = false;
    const end = async (save) => {
      if (done) return;
      done = true;
      const focused = document.activeElement === field || document.activeElement === document.body;
      row.classList.remove("renaming");
      field.remove();
      if (focused) row.querySelector(":scope > a")?.focus({ preventScroll: true });
      if (waiting.has(id) && !isHovered()) { waiting.delete(id); moveIntoOrder(row); }
      if (postponed) r.reloadSessions();
      if (save && field.value.trim() !== (old.classList.contains("untitled") ? "" : old.textContent)) {
        old.textContent = field.value.trim() || old.textContent;
        await alter(id, { title: field.value }).catch((error) => { touch(id); r.failed(error); });
      }
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); end(true); }
      else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); end(false); }
      event.stopPropagation();
    });
    field.addEventListener("blur", () => end(true));
  };
  r.pin = (id, pinned) => alter(id, { pinned });
  r.archive = async (id, archived) => {
    const title = titleOf(byId(id));
    await alter(id, { archived });
    r.toast(archived ? `Archived “${short(title)}”` : `“${short(title)}” was unarchived`, { action: "Undo", run: () => alter(id, { archived: !archived }).catch(r.failed) });
  };
  const short = (title) => title.length > 40 ? title.slice(0, 39) + "…" : title;
  /* Return the neighbor of a session in the list; for a removed row, the neighbor that it had. */
  let lastNeighbor = null;
  function neighbor(id) {
    const all = [...list.querySelectorAll("section > ul > li.session")], at = all.findIndex((row) => idOf(row) === id);
    if (at < 0) return lastNeighbor?.of === id && byId(lastNeighbor.next) ? lastNeighbor.next : r.fromAttribute(all[0]?.dataset.id);
    return r.fromAttribute((all[at + 1] || all[at - 1])?.dataset.id);
  }
  r.openNext = async (id) => {
    const next = neighbor(id);
    if (!next) return r.startConversation();
    try { return await show(next); }
    catch (error) { if (error.status !== 404) throw error; return r.startConversation(); }  /* that one was deleted too */
  };
  r.remove = async (id) => {
    const row = byId(id), title = titleOf(row);
    const next = neighbor(id);
    if (row) { moveFocusFrom(row); row.remove(); tidy(); }
    deleting.add(id);
    let fresh = null;  /* open another conversation first, so that nothing requests the deleted one */
    try {
      if (id === r.current) { if (next) await show(next); else fresh = await r.startConversation(); }
      await r.send("DELETE", path(id));
    } catch (error) { touch(id); throw error; }
    finally { inOrder(() => deleting.delete(id)); }   /* after the responses to earlier requests */
    r.toast(`Deleted “${short(title)}”`, { action: "Undo", run: async () => {
      try { await r.send("POST", path(id, "/restore")); await touch(id, true); } catch (error) { r.failed(error); }
    } });
    if (fresh === id) await r.startConversation();  /* the empty conversation was deleted and returned again */
  };
  r.forkSession = async (id) => { const still = r.beginNavigation(), { session } = await r.send("POST", path(id, "/fork"), undefined, { headers: { "Idempotency-Key": r.key() } }); await touch(session, true); if (still()) await show(session); };
  r.actions.restore = async (button) => {
    const row = rowOf(button), id = idOf(row);
    await r.send("POST", path(id, "/restore"));
    row.remove(); tidy();
    r.toast(`Restored “${short(titleOf(row))}”`, { action: "Open", run: () => { r.unfilter(); show(id); } });
    if (!list.querySelector("li.session")) await reload();
  };
  r.actions.erase = async (button) => {
    const row = rowOf(button), id = idOf(row), title = short(titleOf(row));
    if (!await r.ask(`Erase “${title}” permanently?`, "Its contents are overwritten in the database. This cannot be undone.", "Erase")) return;
    try { await r.send("POST", path(id, "/erase"), { forks: "refuse" }); }
    catch (error) {
      if (error.problem?.code !== "session-has-forks") throw error;
      if (!await r.ask("Other conversations were forked from this one", "They keep the messages they share with it. The rest is erased permanently.", "Erase the rest")) return;
      await r.send("POST", path(id, "/erase"), { forks: "keep" });
    }
    row.remove(); tidy();
    r.toast(`Erased “${title}”`);
    if (!list.querySelector("li.session")) await reload();
  };
  r.actions["empty-trash"] = async () => {
    if (!await r.ask("Empty the trash?", "All conversations in the trash are erased permanently. This cannot be undone.", "Empty trash")) return;
    const { erased } = await r.send("POST", "/page/trash/empty");
    r.toast(erased === 1 ? "1 conversation erased" : `${erased} conversations erased`);
    await reload();
  };

  /* The menu of a row. */
  const menu = document.getElementById("session-menu");
  let chosen = null;
  function openMenu(row, button) {
    chosen = idOf(row);
    const say = (name, text) => { menu.querySelector(`[data-act="${name}"] span`).textContent = text; };
    say("pin", row.hasAttribute("data-pinned") ? "Unpin" : "Pin");
    say("archive", row.hasAttribute("data-archived") ? "Unarchive" : "Archive");
    for (const item of menu.querySelectorAll("[data-color]")) if (item.getAttribute("role")) item.setAttribute("aria-checked", String(item.dataset.color === (row.dataset.color || "")));
    r.menu(menu, button);
  }
  const act = {
    pin: (row) => r.pin(idOf(row), !row.hasAttribute("data-pinned")),
    rename: (row) => r.rename(idOf(row)),
    archive: (row) => r.archive(idOf(row), !row.hasAttribute("data-archived")),
    fork: (row) => r.forkSession(idOf(row)),
    export: (row) => r.exportDialog?.(idOf(row), titleOf(row)),
    delete: (row) => r.remove(idOf(row)),
  };
  r.actions["row-menu"] = (button) => openMenu(rowOf(button), button);
  menu?.addEventListener("click", (event) => {
    const item = event.target.closest("button");
    const row = chosen && byId(chosen);
    if (!item || !row) return;
    menu.hidePopover();
    const done = item.dataset.act ? act[item.dataset.act](row) : alter(chosen, { color: item.dataset.color });
    Promise.resolve(done).catch(r.failed);
  });
  list.addEventListener("contextmenu", (event) => {
    const row = event.target.closest("li.session"), button = row?.querySelector(":scope > [data-do='row-menu']");
    if (!button || event.target.closest("input")) return;
    event.preventDefault();
    openMenu(row, button);
  });

  /* Keyboard shortcuts of the list. */
  list.addEventListener("keydown", (event) => {
    const row = event.target.closest("li.session"), link = row?.querySelector(":scope > a");
    if (!link || event.target.closest("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = links(), at = all.indexOf(link);
    const go = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1, PageDown: Math.min(at + 10, all.length - 1), PageUp: Math.max(at - 10, 0) }[event.key];
    const toggle = row.querySelector(":scope > .session-toggle");
    if (go !== undefined) { all[go]?.focus(); }
    else if (event.key === "F2") act.rename(row);
    else if (event.key === "Delete") Promise.resolve(act.delete(row)).catch(r.failed);
    else if (event.key === "ContextMenu" || event.key === "F10" && event.shiftKey) openMenu(row, row.querySelector(":scope > .session-more"));
    else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && toggle && (toggle.getAttribute("aria-expanded") === "true") !== (event.key === "ArrowRight")) toggle.click();
    else return;
    event.preventDefault();
  });

  /* Swipe left on a touch screen: the most common actions. */
  let swipe = null;
  const unswipe = () => list.querySelector(".session-actions")?.remove();
  list.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".session-actions")) unswipe();
    const row = event.target.closest("li.session");
    swipe = event.pointerType === "touch" && row?.querySelector(":scope > a") ? { row, x: event.clientX, y: event.clientY } : null;
  });
  list.addEventListener("pointermove", (event) => {
    if (!swipe || swipe.x - event.clientX < 36 || Math.abs(event.clientY - swipe.y) > 28) return;
    const { row } = swipe;
    swipe = null;
    const strip = document.createElement("div");
    strip.className = "session-actions";
    for (const name of ["pin", "rename", "archive", "delete"]) {
      const from = menu.querySelector(`[data-act="${name}"]`), button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", name[0].toUpperCase() + name.slice(1));
      if (name === "delete") button.className = "danger";
      button.append(from.querySelector("svg").cloneNode(true));
      button.addEventListener("click", (click) => { click.stopPropagation(); strip.remove(); Promise.resolve(act[name](row)).catch(r.failed); });
      strip.append(button);
    }
    row.append(strip);
    row.addEventListener("click", (click) => { if (!click.target.closest(".session-actions")) { click.preventDefault(); click.stopPropagation(); } }, { once: true, capture: true });
  });
  for (const name of ["pointerup", "pointercancel"]) list.addEventListener(name, () => { swipe = null; });
  list.addEventListener("scroll", () => { if (list.querySelector(".session-actions")) unswipe(); }, { passive: true });

  /* Filters. */
  const bar = document.querySelector(".sidebar-filter");
  const box = document.getElementById("session-filters");
  function showFilter() {
    const words = [{ archived: "Archived", trash: "Trash" }[filter.view], filter.channel, filter.model].filter(Boolean);
    bar.hidden = !words.length;
    bar.querySelector("[data-filter-label]").textContent = words.join(" · ");
    bar.querySelector('[data-do="empty-trash"]').hidden = filter.view !== "trash";
  }
  async function applyFilter(values) { Object.assign(filter, values); showFilter(); list.scrollTop = 0; await reload(); }
  r.unfilter = () => applyFilter({ view: "", channel: "", model: "" });
  r.filter = applyFilter;
  r.actions.unfilter = () => r.unfilter();
  r.actions.filters = async (button) => {
    const form = box.querySelector("form");
    form.elements.view.value = filter.view;
    const known = await r.send("GET", "/page/filters");
    for (const name of ["channel", "model"]) {
      const select = form.elements[name];
      select.replaceChildren(new Option("Any", ""), ...known[name + "s"].map((value) => new Option(value, value)));
      select.value = filter[name];
    }
    r.menu(box, button);
  };
  box?.querySelector("form").addEventListener("change", (event) => { const form = event.currentTarget; applyFilter({ view: form.elements.view.value, channel: form.elements.channel.value, model: form.elements.model.value }).catch(r.failed); });
  box?.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); box.hidePopover(); });

  /* Resizing by pointer or arrow keys. */
  const edge = document.getElementById("sidebar-edge");
  const least = Number(edge.getAttribute("aria-valuemin")), most = Number(edge.getAttribute("aria-valuemax"));
  function widen(width) {
    const step = Math.min(most, Math.max(least, Math.round(width / 20) * 20));
    document.body.dataset.sidebar = step;
    edge.setAttribute("aria-valuenow", step);
    setCookie("sidebar", step);
  }
  edge.addEventListener("pointerdown", (event) => { edge.setPointerCapture(event.pointerId); document.body.classList.add("resizing"); event.preventDefault(); });
  edge.addEventListener("pointermove", (event) => { if (edge.hasPointerCapture(event.pointerId)) widen(event.clientX); });
  edge.addEventListener("lostpointercapture", () => document.body.classList.remove("resizing"));
  edge.addEventListener("dblclick", () => widen(280));
  edge.addEventListener("keydown", (event) => {
    const now = Number(edge.getAttribute("aria-valuenow"));
    const to = { ArrowRight: now + 20, ArrowLeft: now - 20, Home: least, End: most, Enter: 280 }[event.key];
    if (to !== undefined) { widen(to); event.preventDefault(); }
  });

  /* The drawer below 800 px: the page behind it is inert, and the focus returns when it closes. */
  const plainDrawer = r.drawer;
  let from = null;
  r.drawer = (open = !document.body.classList.contains("drawer")) => {
    if (open && !document.body.classList.contains("drawer")) from = document.activeElement;
    plainDrawer(open);
    for (const behind of document.querySelectorAll("#conversation, #panel, .skip")) behind.inert = open;
    if (!open && from) { if (from.isConnected) from.focus({ preventScroll: true }); from = null; }
  };
  matchMedia("(max-width: 799px)").addEventListener("change", (event) => { if (!event.matches && document.body.classList.contains("drawer")) r.drawer(false); });
  document.getElementById("sidebar").addEventListener("keydown", (event) => {
    if (event.key !== "Tab" || !document.body.classList.contains("drawer")) return;
    const all = [...event.currentTarget.querySelectorAll("a[href], button, input, select")].filter((element) => element.tabIndex >= 0 && element.checkVisibility());
    const end = event.shiftKey ? all[0] : all[all.length - 1];
    if (document.activeElement === end) { all[event.shiftKey ? all.length - 1 : 0].focus(); event.preventDefault(); }
  });

  /* The browser's time zone: the server groups conversations by its days. */
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  const minutes = -new Date().getTimezoneOffset();
  setCookie("recollect-zone", `${zone}|${minutes}`);
  watchMore();
  ensureReachable();
  if (list.dataset.zone !== zone) reload().then(() => { list.dataset.zone = zone; }).catch(() => {});
})();
