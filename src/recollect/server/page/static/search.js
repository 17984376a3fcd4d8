"use strict";
/* The search dialog: results while the user types; the latest query wins. */
(() => {
  const r = window.recollect;
  const dialog = document.getElementById("search");
  if (!dialog) return;
  const field = dialog.querySelector("#search-field"), hits = dialog.querySelector("#search-hits");
  const message = dialog.querySelector("#search-message"), counter = dialog.querySelector("#search-count");
  const filters = dialog.querySelector("form.search-filters");
  const toggle = dialog.querySelector('[data-do="search-filters"]');
  let request = null, pending = null, timer = 0, chosen = null, number = 0;

  const recent = () => { try { return JSON.parse(localStorage.getItem("recollect.searches") || "[]").filter((query) => typeof query === "string").slice(0, 8); } catch { return []; } };
  function remember(query) {
    if (!query.trim()) return;
    try { localStorage.setItem("recollect.searches", JSON.stringify([query, ...recent().filter((other) => other !== query)].slice(0, 8))); } catch { /* storage is full or disabled: do not remember it */ }
  }
  const chosenFilters = () => [...new FormData(filters)].filter(([, value]) => value);

  function showMessage(content) {
    hits.replaceChildren();
    hits.hidden = true;
    message.hidden = false;
    message.replaceChildren(content);
    choose(null);
  }
  function start() {
    const page = document.getElementById("search-start").content.cloneNode(true);
    const known = recent();
    if (known.length) {
      const head = document.createElement("p");
      head.className = "search-recent-head";
      head.textContent = "Recent searches";
      const row = document.createElement("div");
      row.className = "search-recent";
      for (const query of known) {
        const button = document.createElement("button");
        button.type = "button"; button.className = "button compact one-line"; button.textContent = query; button.dataset.example = query;
        row.append(button);
      }
      const forget = document.createElement("button");
      forget.type = "button"; forget.className = "button plain compact"; forget.textContent = "Clear";
      forget.addEventListener("click", () => { localStorage.removeItem("recollect.searches"); start(); field.focus(); });
      row.append(forget);
      page.prepend(head, row);
    }
    counter.textContent = "";
    showMessage(page);
  }
  function paragraphs(text, ...more) {
    const page = document.createDocumentFragment();
    for (const line of [text, ...more]) { const p = document.createElement("p"); p.textContent = line; page.append(p); }
    return page;
  }

  function choose(hit, scroll = true) {
    chosen?.setAttribute("aria-selected", "false");
    chosen = hit;
    if (!hit) { field.removeAttribute("aria-activedescendant"); return; }
    hit.setAttribute("aria-selected", "true");
    field.setAttribute("aria-activedescendant", hit.id);
    if (scroll) {
      const head = hit.previousElementSibling?.classList.contains("hits-head") ? hit.parentElement : hit;
      if (head !== hit && head.getBoundingClientRect().top < hits.getBoundingClientRect().top) head.scrollIntoView({ block: "nearest" });
      hit.scrollIntoView({ block: "nearest" });
    }
  }
  function take(piece) {
    for (const hit of piece.querySelectorAll(".hit")) hit.id = "hit-" + ++number;
    hits.append(piece);
    const more = hits.querySelector(".hits-more");
    if (more) observer.observe(more);
    const count = hits.querySelectorAll(".hit").length;
    counter.textContent = count ? `${count}${more ? "+" : ""} ${count === 1 && !more ? "result" : "results"}` : "";
  }
  const observer = new IntersectionObserver(async (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || !target.isConnected) continue;
      observer.unobserve(target);
      const mine = request;
      try {
        const html = await r.send("GET", target.dataset.url, undefined, { accept: "text/html", signal: mine?.signal });
        if (!target.isConnected) continue;
        target.remove();
        take(r.parse(html));
      } catch (error) { r.failed(error); setTimeout(() => { if (target.isConnected) observer.observe(target); }, 3000); }
    }
  }, { root: hits, rootMargin: "400px 0px" });

  const runNow = () => { clearTimeout(timer); timer = 0; return pending = answer(); };
  async function answer() {
    request?.abort();
    const query = field.value.trim();
    const parameters = new URLSearchParams([["q", query], ...chosenFilters()]);
    if (!query && !chosenFilters().length) { request = null; dialog.removeAttribute("aria-busy"); start(); return; }
    const mine = request = new AbortController();
    dialog.setAttribute("aria-busy", "true");
    try {
      const html = await r.send("GET", "/page/search?" + parameters, undefined, { accept: "text/html", signal: mine.signal });
      if (request !== mine) return;
      const piece = r.parse(html);
      if (piece.querySelector("[data-none]")) {
        counter.textContent = "No results";
        showMessage(paragraphs(query ? `No results for “${query.length > 80 ? query.slice(0, 79) + "…" : query}”.` : "No results for these filters.",
          piece.querySelector("[data-incomplete]")?.textContent
            || (chosenFilters().length ? "Try again without the filters." : "Try fewer words or a prefix, such as deploy*")));
        return;
      }
      message.hidden = true;
      hits.hidden = false;
      hits.replaceChildren();
      hits.scrollTop = 0;
      take(piece);
      choose(hits.querySelector(".hit"), false);
    } catch (error) {
      if (error.name === "AbortError" || request !== mine) return;
      counter.textContent = "";
      showMessage(paragraphs(error.message));
    } finally {
      if (request === mine) dialog.removeAttribute("aria-busy");
    }
  }
  const runSoon = (wait = 120) => { clearTimeout(timer); timer = setTimeout(runNow, wait); };

  /* Enter opens a result for the current text. Wait until its results have arrived. */
  async function enter() {
    if (timer) runNow();
    for (let mine = null; mine !== pending;) await (mine = pending);
    if (dialog.open) await go(chosen);
  }
  async function go(hit) {
    if (!hit) return;
    remember(field.value.trim());
    const { message } = hit.dataset, session = r.fromAttribute(hit.dataset.session);
    dialog.close();
    if (r.open) await r.open(session, message || undefined);
    else location.assign(r.address(session, message || undefined));
  }
  r.search = async (query) => {
    if (dialog.open) { field.focus(); field.select(); return; }
    if (document.body.classList.contains("drawer")) r.drawer(false);
    dialog.showModal();
    if (typeof query === "string") field.value = query;
    field.focus();
    field.select();
    runNow();
    try {
      const known = await r.send("GET", "/page/filters");
      for (const name of ["channel", "model"]) {
        const select = filters.elements[name], was = select.value;
        select.replaceChildren(new Option("Any", ""), ...known[name + "s"].map((value) => new Option(value, value)));
        select.value = known[name + "s"].includes(was) ? was : "";
      }
    } catch { /* the search itself shows the error */ }
  };
  r.actions["search-filters"] = () => {
    filters.hidden = !filters.hidden;
    toggle.setAttribute("aria-expanded", String(!filters.hidden));
    if (!filters.hidden) filters.elements.role.focus();
  };
  field.addEventListener("input", () => runSoon());
  filters.addEventListener("input", () => runSoon());
  filters.addEventListener("submit", (event) => { event.preventDefault(); field.focus(); });
  dialog.querySelector("form.search-head").addEventListener("submit", (event) => event.preventDefault());
  dialog.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.target === field && ["ArrowDown", "ArrowUp", "PageDown", "PageUp"].includes(event.key)) {
      const all = [...hits.querySelectorAll(".hit")];
      if (!all.length) return;
      event.preventDefault();
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
      choose(all[Math.min(all.length - 1, Math.max(0, all.indexOf(chosen) + step))]);
    } else if (event.target === field && event.key === "Enter") {
      event.preventDefault();
      enter().catch(r.failed);
    }
  });
  hits.addEventListener("click", (event) => { const hit = event.target.closest(".hit"); if (hit) go(hit).catch(r.failed); });
  hits.addEventListener("pointermove", (event) => { const hit = event.target.closest(".hit"); if (hit && hit !== chosen) choose(hit, false); });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) { dialog.close(); return; }
    const example = event.target.closest("[data-example]");
    if (example) { field.value = example.dataset.example; field.focus(); runNow(); }
  });
  dialog.addEventListener("close", () => { request?.abort(); clearTimeout(timer); timer = 0; });
})();
