"use strict";
/* Search over everything: hits as one types, the newest question wins. */
(() => {
  const r = window.recollect;
  const dialog = document.getElementById("search");
  if (!dialog) return;
  const field = dialog.querySelector("#search-field"), hits = dialog.querySelector("#search-hits");
  const told = dialog.querySelector("#search-told"), counted = dialog.querySelector("#search-count");
  const filters = dialog.querySelector("form.search-filters");
  const toggle = dialog.querySelector('[data-do="search-filters"]');
  let asking = null, looking = null, timer = 0, chosen = null, number = 0;

  const recent = () => { try { return JSON.parse(localStorage.getItem("recollect.searches") || "[]").filter((one) => typeof one === "string").slice(0, 8); } catch { return []; } };
  function remember(query) {
    if (!query.trim()) return;
    try { localStorage.setItem("recollect.searches", JSON.stringify([query, ...recent().filter((one) => one !== query)].slice(0, 8))); } catch { /* it is kept by nobody, then */ }
  }
  const chosenFilters = () => [...new FormData(filters)].filter(([, value]) => value);

  function say(content) {
    hits.replaceChildren();
    hits.hidden = true;
    told.hidden = false;
    told.replaceChildren(content);
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
      for (const one of known) {
        const button = document.createElement("button");
        button.type = "button"; button.className = "button compact one-line"; button.textContent = one; button.dataset.example = one;
        row.append(button);
      }
      const forget = document.createElement("button");
      forget.type = "button"; forget.className = "button plain compact"; forget.textContent = "Forget them";
      forget.addEventListener("click", () => { localStorage.removeItem("recollect.searches"); start(); field.focus(); });
      row.append(forget);
      page.prepend(head, row);
    }
    counted.textContent = "";
    say(page);
  }
  function words(text, ...more) {
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
    if (more) seer.observe(more);
    const count = hits.querySelectorAll(".hit").length;
    counted.textContent = count ? `${count}${more ? "+" : ""} ${count === 1 && !more ? "hit" : "hits"}` : "";
  }
  const seer = new IntersectionObserver(async (seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting || !target.isConnected) continue;
      seer.unobserve(target);
      const mine = asking;
      try {
        const html = await r.send("GET", target.dataset.url, undefined, { accept: "text/html", signal: mine?.signal });
        if (!target.isConnected) continue;
        target.remove();
        take(r.parse(html));
      } catch (error) { r.failed(error); setTimeout(() => { if (target.isConnected) seer.observe(target); }, 3000); }
    }
  }, { root: hits, rootMargin: "400px 0px" });

  const look = () => { clearTimeout(timer); timer = 0; return looking = answer(); };
  async function answer() {
    asking?.abort();
    const query = field.value.trim();
    const asked = new URLSearchParams([["q", query], ...chosenFilters()]);
    if (!query && !chosenFilters().length) { asking = null; dialog.removeAttribute("aria-busy"); start(); return; }
    const mine = asking = new AbortController();
    dialog.setAttribute("aria-busy", "true");
    try {
      const html = await r.send("GET", "/page/search?" + asked, undefined, { accept: "text/html", signal: mine.signal });
      if (asking !== mine) return;
      const piece = r.parse(html);
      if (piece.querySelector("[data-none]")) {
        counted.textContent = "Nothing found";
        say(words(query ? `Nothing was found for “${query.length > 80 ? query.slice(0, 79) + "…" : query}”.` : "Nothing fits these filters.",
          piece.querySelector("[data-hindered]")?.textContent
            || (chosenFilters().length ? "Try it without the filters." : "Try fewer words, or the beginning of one with a star: deploy*")));
        return;
      }
      told.hidden = true;
      hits.hidden = false;
      hits.replaceChildren();
      hits.scrollTop = 0;
      take(piece);
      choose(hits.querySelector(".hit"), false);
    } catch (error) {
      if (error.name === "AbortError" || asking !== mine) return;
      counted.textContent = "";
      say(words(error.message));
    } finally {
      if (asking === mine) dialog.removeAttribute("aria-busy");
    }
  }
  const soon = (wait = 120) => { clearTimeout(timer); timer = setTimeout(look, wait); };

  /* Enter means a hit of what stands in the field, which may not be answered yet. */
  async function enter() {
    if (timer) look();
    for (let mine = null; mine !== looking;) await (mine = looking);
    if (dialog.open) await go(chosen);
  }
  async function go(hit) {
    if (!hit) return;
    remember(field.value.trim());
    const { session, message } = hit.dataset;
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
    look();
    try {
      const known = await r.send("GET", "/page/filters");
      for (const name of ["channel", "model"]) {
        const select = filters.elements[name], was = select.value;
        select.replaceChildren(new Option("Any", ""), ...known[name + "s"].map((value) => new Option(value, value)));
        select.value = known[name + "s"].includes(was) ? was : "";
      }
    } catch { /* the search itself tells what is wrong */ }
  };
  r.actions["search-filters"] = () => {
    filters.hidden = !filters.hidden;
    toggle.setAttribute("aria-expanded", String(!filters.hidden));
    if (!filters.hidden) filters.elements.role.focus();
  };
  field.addEventListener("input", () => soon());
  filters.addEventListener("input", () => soon());
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
    if (example) { field.value = example.dataset.example; field.focus(); look(); }
  });
  dialog.addEventListener("close", () => { asking?.abort(); clearTimeout(timer); timer = 0; });
})();
