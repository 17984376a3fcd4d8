"use strict";
/* The composer: what is typed is never lost. Text, files, commands, editing, Send and Stop. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const act = r.actions;
  const path = (session, rest) => "/page/conversation/" + encodeURIComponent(session) + rest;
  /* Text by session, in the browser's storage. What that refuses (it is full, or forbidden) stays in this window. */
  const kept = (name) => ({
    unsaved: new Map(),
    key: (session) => "recollect:" + name + ":" + session,
    get(session) {
      if (this.unsaved.has(session)) return this.unsaved.get(session);
      try { return localStorage.getItem(this.key(session)) || ""; } catch { return ""; }
    },
    set(session, text) {
      this.unsaved.delete(session);
      try { if (text) localStorage.setItem(this.key(session), text); else localStorage.removeItem(this.key(session)); }
      catch { if (text) this.unsaved.set(session, text); }
    },
  });
  const drafts = kept("draft"), sends = kept("sending");   /* a message that is being sent keeps its key over a reload */
  let state = null;   /* session, files, editing, sending */
  const pictures = new WeakMap();   /* the address of a picture that was chosen */
  const known = new Map();   /* the state of each session that was shown: files that are not sent, what is being sent */

  document.addEventListener("recollect:mounted", ({ detail }) => {
    const form = $("composer"), text = $("composer-text");
    if (!known.has(detail.session)) known.set(detail.session, { session: detail.session, files: [], refused: [], sending: false, last: JSON.parse(sends.get(detail.session) || "null") });
    state = Object.assign(known.get(detail.session), { editing: null, form, text, chosen: -1,
      commands: JSON.parse(form.dataset.commands), most: Number(form.dataset.most), largest: Number(form.dataset.largest), total: Number(form.dataset.total) });
    form.classList.toggle("sending", state.sending);
    text.value = drafts.get(state.session);
    text.addEventListener("input", () => { grow(); if (!state.editing) drafts.set(state.session, text.value); remember(state, null); complete(); note(); });
    text.addEventListener("keydown", keys);
    text.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files || [])];
      const words = files.length ? "" : event.clipboardData?.getData("text/plain") || "";
      if (files.length) { event.preventDefault(); add(files); }
      else if (words.length > FIELD && !state.editing) {
        event.preventDefault();
        add([new File([words], "pasted text.txt", { type: "text/plain" })]);
        r.toast(`The pasted text has ${words.length.toLocaleString("en-US")} characters, too many for the field. It is attached as a file.`, { seconds: 8 });
      }
    });
    text.addEventListener("blur", () => setTimeout(() => { if (document.activeElement !== $("composer-text")) close(); }, 120));
    form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
    $("file").addEventListener("change", (event) => { add([...event.target.files]); event.target.value = ""; });
    grow(); preview(); refusals();
  });

  const FIELD = 1_000_000;   /* characters: Chromium lays out more than that for seconds, at each key */
  const LONG = 20_000;   /* characters: to lay out more than that for each key takes longer than a frame */
  function grow() {
    const text = state.text;
    const line = parseFloat(getComputedStyle(text).lineHeight) || 24;
    const most = line * 10 + 16, long = text.value.length > LONG;
    if (!long) text.style.height = "auto";
    text.style.height = (long ? most : Math.min(text.scrollHeight, most)) + "px";
    text.style.overflowY = long || text.scrollHeight > most ? "auto" : "hidden";
  }
  function put(value) { state.text.value = value; grow(); if (!state.editing) drafts.set(state.session, value); note(); }
  r.keep = (session, value) => { if (state?.session === session) r.compose(value); else drafts.set(session, value); };
  r.compose = (value) => { if (!state) return; put(value); state.text.focus(); state.text.setSelectionRange(value.length, value.length); };

  /* --- limits -------------------------------------------------------------------------------------------------- */
  const exact = (bytes) => bytes.toLocaleString("en-US") + " bytes";
  /* Bytes of the message as it is sent: a form has two for the end of a line, JSON has escapes. */
  function weight({ text: { value }, editing, files, total }) {
    if (editing) return value.length * 6 < total ? 0 : new Blob([JSON.stringify(value)]).size;
    const attached = files.reduce((sum, file) => sum + file.size, 0);
    return attached + (value.length * 4 + attached < total ? value.length : new Blob([value.replaceAll("\n", "\r\n")]).size);
  }
  function excess(mine) {
    const bytes = weight(mine);
    return bytes <= mine.total ? "" : `This message is too large to send: it has ${exact(bytes)}${mine.files.length ? " with its files" : ""}, and the limit is ${size(mine.total)} (${exact(mine.total)}). Nothing was cut off: shorten it, or send it in parts.`;
  }
  /* What stands under the field until it is not true any more. */
  function note() {
    const over = excess(state), place = $("composer-note");
    const unsaved = drafts.unsaved.has(state.session) && !state.editing;
    place.hidden = !over && !unsaved;
    place.classList.toggle("failed", !!over);
    place.textContent = over || (unsaved ? "The browser cannot store a draft of this size. It stays in this window until you send it: closing or reloading the window loses it." : "");
    $("send").setAttribute("aria-disabled", String(!!over));
    removeEventListener("beforeunload", ask);
    if (drafts.unsaved.size) addEventListener("beforeunload", ask);
  }
  const ask = (event) => { if (drafts.unsaved.size) event.preventDefault(); };   /* the browser asks before it leaves */

  /* --- files --------------------------------------------------------------------------------------------------- */
  const size = (bytes) => bytes < 1000 ? bytes + " B" : bytes < 1e6 ? (bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0) + " kB" : (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB";
  function add(files) {
    if (!state) return;
    for (const file of files) {
      const why = state.editing ? "An edited message keeps the files that it has"
        : file.size > state.largest ? `Larger than ${size(state.largest)} (${exact(state.largest)})`
        : state.files.length >= state.most ? `A message can have at most ${state.most} files` : "";
      if (why) state.refused.push({ why, name: file.size > state.largest ? `${file.name} (${exact(file.size)})` : file.name });
      else state.files.push(file);
    }
    preview(); refusals();
    state.text.focus();
  }
  /* The files that were left out, by reason, until this is dismissed. */
  function refusals() {
    const { refused } = state, place = $("refused");
    place.hidden = !refused.length;
    place.querySelector("strong").textContent = refused.length === 1 ? "1 file was not added" : `${refused.length} files were not added`;
    const reasons = [...new Set(refused.map(({ why }) => why))].map((why) => {
      const row = document.createElement("p");
      row.textContent = `${why}: ${refused.filter((one) => one.why === why).map(({ name }) => name).join(", ")}.`;
      return row;
    });
    place.querySelector(".refused-files").replaceChildren(...reasons);
  }
  act["dismiss-refused"] = () => { state.refused = []; refusals(); state.text.focus(); };
  function preview() {
    const place = $("files");
    place.replaceChildren(...state.files.map((file, index) => {
      const chip = document.createElement("div");
      chip.className = "file-chip";
      if (/^image\/(png|jpeg|gif|webp|avif)$/.test(file.type)) {
        const image = document.createElement("img");
        if (!pictures.has(file)) pictures.set(file, URL.createObjectURL(file));
        image.src = pictures.get(file);
        image.alt = "";
        chip.append(image);
      }
      const name = document.createElement("span");
      name.className = "one-line";
      name.textContent = file.name;
      const bytes = document.createElement("span");
      bytes.className = "tiny faint";
      bytes.textContent = size(file.size);
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "button plain compact icon-only";
      remove.setAttribute("aria-label", "Remove " + file.name);
      remove.textContent = "×";
      remove.addEventListener("click", () => { state.files.splice(index, 1); preview(); state.text.focus(); });
      chip.append(name, bytes, remove);
      return chip;
    }));
    place.hidden = !state.files.length;
    note();
  }
  act.attach = () => $("file").click();
  const carries = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  document.addEventListener("dragover", (event) => { if (carries(event) && state && $("composer") && !document.querySelector("dialog[open]")) { event.preventDefault(); $("conversation").classList.add("dropping"); } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("conversation").classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    $("conversation").classList.remove("dropping");
    if (!carries(event) || !state || !$("composer") || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });

  /* --- sending ------------------------------------------------------------------------------------------------- */
  const isCommand = (text) => /^\/[a-z][^\s/]*(\s|$)/i.test(text.trim()) && !text.trim().includes("\n");
  async function submit(takeOver = false) {
    const text = state.text.value, mine = state, { editing } = mine, files = [...mine.files];
    close();
    waitNoMore();
    if (mine.sending) { mine.next = text; return; }
    if (!text.trim() && !files.length) return;
    if (excess(mine)) { note(); mine.text.focus(); return; }
    if (isCommand(text) && !editing && !files.length) { await command(text).catch(r.failed); next(mine, text); return; }
    if (r.isAnswering("Your text is kept.")) return;
    sending(mine, true);
    /* The same message sent again after a lost answer keeps its key, so that it is said once. */
    const content = JSON.stringify([digest(text), editing, files.map((file) => [file.name, file.size, file.lastModified])]);
    if (mine.last?.content !== content) remember(mine, { content, key: r.key() });
    const headers = { "Idempotency-Key": mine.last.key };
    let begun;
    try {
      if (editing) begun = await r.send("POST", path(mine.session, "/edit"), { message: editing, text }, { headers });
      else {
        const form = new FormData();
        form.append("text", text);
        for (const file of files) form.append("files", file, file.name);
        if (takeOver) form.append("take_over", "yes");
        begun = await r.send("POST", path(mine.session, "/say"), form, { headers });
      }
      remember(mine, null);
      sent(mine, { text, editing, files, turn: begun.turn });
    } catch (error) { if (r.isBusy(error) && state === mine) busy(error, mine); else r.failed(error.offline ? new Error("The server can not be reached. What you wrote stays here: send it again when it is back.") : error); }
    finally { sending(mine, false); }
    next(mine, text);
  }
  /* What was entered while the message before it was on its way; that one entered twice is sent once. */
  function next(mine, before) {
    const text = mine.next;
    mine.next = undefined;
    if (text && text !== before && state === mine && mine.text.value === text) submit().catch(r.failed);
  }
  /* A text as a few characters (the hash cyrb53), so that a long one need not be stored a second time. */
  function digest(text) {
    let one = 0xdeadbeef, two = 0x41c6ce57;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      one = Math.imul(one ^ code, 2654435761);
      two = Math.imul(two ^ code, 1597334677);
    }
    one = Math.imul(one ^ (one >>> 16), 2246822507) ^ Math.imul(two ^ (two >>> 13), 3266489909);
    two = Math.imul(two ^ (two >>> 16), 2246822507) ^ Math.imul(one ^ (one >>> 13), 3266489909);
    return `${text.length}-${(two >>> 0).toString(16)}-${(one >>> 0).toString(16)}`;
  }
  function remember(mine, last) { mine.last = last; sends.set(mine.session, last ? JSON.stringify(last) : ""); }
  function sending(mine, now) { mine.sending = now; mine.form.classList.toggle("sending", now); }
  r.isSending = (session) => !!known.get(session)?.sending;

  /* Someone else answers here: wait for them, end their answer, or go on beside them. What was typed stays. */
  let waiting = 0;
  function waitNoMore() { clearInterval(waiting); waiting = 0; }
  function busy(error, mine) {
    notice("<p></p>", true);
    const box = document.querySelector("#notices .notice"), words = box.querySelector("p"), row = document.createElement("div");
    words.textContent = r.words(error) + " What you wrote stays here.";
    row.className = "row notice-actions";
    const offer = (label, run) => {
      const button = document.createElement("button");
      button.type = "button"; button.className = "button compact"; button.textContent = label;
      button.addEventListener("click", () => Promise.resolve(run(button)).catch(r.failed));
      row.append(button);
    };
    offer("Send when it is done", () => {
      words.textContent = "It is sent as soon as the other answer is complete.";
      row.replaceChildren();
      offer("Do not wait", () => { waitNoMore(); notice(""); state.text.focus(); });
      waiting = setInterval(() => r.refresh(), 3000);
      r.refresh();
    });
    if (!mine.editing) offer("Take over", () => submit(true));
    if (!mine.editing && !mine.files.length) offer("Say it in a fork", async () => {
      const text = mine.text.value, still = r.wishing();
      const { session } = await r.send("POST", path(mine.session, "/fork"), { message: null }, { headers: { "Idempotency-Key": r.key() } });
      drafts.set(session, text);
      taken(mine, text);
      if (!still()) return;   /* it waits in the fork */
      await r.open(session);
      if (state.session === session) await submit();
    });
    words.after(row);
  }
  document.addEventListener("recollect:refreshed", ({ detail }) => {
    if (!waiting || !state || detail.session !== state.session || r.talk().running) return;
    if (!document.querySelector("#messages > .message:last-of-type .ending.open")) submit().catch(r.failed);
  });
  document.addEventListener("recollect:leaving", waitNoMore);
  /* Let go of what was taken, wherever it stands by now, and of nothing that came after it. */
  function taken(mine, text) {
    if (drafts.get(mine.session) === text) drafts.set(mine.session, "");
    if (state === mine && mine.text.value === text && !mine.editing) put("");
  }
  function sent(mine, { text, editing, files, turn }) {
    const edited = editing && mine.editing === editing;
    if (edited) { mine.editing = null; if (state === mine && mine.text.value === text) put(drafts.get(mine.session)); }
    if (!editing) { mine.files = mine.files.filter((file) => !files.includes(file)); taken(mine, text); }
    if (state !== mine) return;
    $("editing").hidden = !mine.editing;
    preview();
    notice("");
    const shown = r.talk();
    shown.atEnd = true;
    r.answering(turn);
    r.refresh().then(() => { if (r.talk() === shown) act["to-end"](); });
  }
  act.sample = (button) => { put(button.textContent); submit(); };
  act.stop = async () => { await r.send("POST", path(state.session, "/stop")); };

  /* --- editing ------------------------------------------------------------------------------------------------- */
  function edit(article) {
    if (r.isAnswering()) return;
    state.editing = article.dataset.message;
    $("editing").hidden = false;
    put(article.querySelector(".words")?.textContent || "");
    state.text.focus();
    state.text.setSelectionRange(state.text.value.length, state.text.value.length);
  }
  function cancel() {
    if (!state.editing) return;
    state.editing = null;
    $("editing").hidden = true;
    state.text.value = drafts.get(state.session);
    grow(); note();
    state.text.focus();
  }
  act.edit = (button) => edit(button.closest("article"));
  act["cancel-edit"] = cancel;

  /* --- commands ------------------------------------------------------------------------------------------------ */
  function matching() {
    const text = state.text.value;
    if (state.editing || !/^\/[a-z]*$/i.test(text)) return [];
    return state.commands.filter(([name]) => name.startsWith(text.slice(1).toLowerCase()));
  }
  function complete() {
    const found = matching(), place = $("completions");
    state.chosen = found.length ? Math.min(Math.max(state.chosen, 0), found.length - 1) : -1;
    place.hidden = !found.length;
    state.text.setAttribute("aria-expanded", String(!!found.length));
    place.replaceChildren(...found.map(([name, argument, help], index) => {
      const row = document.createElement("button");
      row.type = "button";
      row.id = "completion-" + name;
      row.tabIndex = -1;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(index === state.chosen));
      const word = document.createElement("code");
      word.textContent = "/" + name + (argument ? " " + argument : "");
      const said = document.createElement("span");
      said.className = "faint";
      said.textContent = help;
      row.append(word, said);
      row.addEventListener("pointerdown", (event) => { event.preventDefault(); take(name, argument); });
      return row;
    }));
    if (found.length) {
      state.text.setAttribute("aria-activedescendant", "completion-" + found[state.chosen][0]);
      place.children[state.chosen].scrollIntoView({ block: "nearest" });
    } else state.text.removeAttribute("aria-activedescendant");
  }
  function close() { const place = $("completions"); if (place) { place.hidden = true; state.chosen = -1; } }
  function take(name, argument) {
    if (argument && !argument.startsWith("[")) { put("/" + name + " "); close(); state.text.focus(); return; }
    put("/" + name);
    submit();
  }
  async function command(text) {
    const mine = state, line = text.trim();
    if (/^\/new\b/i.test(line) && !line.includes(" ")) { put(""); await r.begin(); return; }
    sending(mine, true);
    const still = r.wishing();
    let done;
    try { done = await r.send("POST", path(mine.session, "/command"), { line }); }
    finally { sending(mine, false); }
    taken(mine, text);
    if (!still() || state !== mine) return;
    if (done.data === "export") { (r.exportDialog || (() => {}))(mine.session); return; }
    if (done.action === "pick") { r.search?.(); return; }
    if (done.action === "quit") { notice("<p>Close this window to leave. Everything is kept.</p>"); return; }
    if (done.session !== mine.session) await r.open(done.session); else await r.refresh();
    if (state.session !== done.session) return;
    notice(done.html, done.failed);
    if (done.action === "edit" && done.data && !state.text.value) r.compose(done.data);
  }
  function notice(html, failed) {
    const place = $("notices");
    place.replaceChildren();
    if (!html) return;
    const box = document.createElement("div");
    box.className = "notice" + (failed ? " failed" : "");
    const words = document.createElement("div");
    words.className = "prose small grow";
    words.innerHTML = html;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button plain compact icon-only";
    button.setAttribute("aria-label", "Dismiss");
    button.textContent = "×";
    button.addEventListener("click", () => { box.remove(); state.text.focus(); });
    box.append(words, button);
    place.append(box);
  }
  r.notice = notice;

  /* --- keys ---------------------------------------------------------------------------------------------------- */
  function keys(event) {
    if (event.isComposing || event.keyCode === 229) return;
    const found = $("completions").hidden ? [] : matching();
    if (found.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      state.chosen = (state.chosen + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      complete();
    } else if (found.length && (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey))) {
      event.preventDefault();
      take(found[state.chosen][0], found[state.chosen][1]);
    } else if (found.length && event.key === "Escape") { event.preventDefault(); close(); }
    else if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) { event.preventDefault(); submit(); }
    else if (event.key === "Escape" && state.editing) { event.preventDefault(); cancel(); }
    else if (event.key === "ArrowUp" && !state.text.value && !state.editing) {
      const mine = document.querySelectorAll("#messages > article.user");
      if (mine.length) { event.preventDefault(); edit(mine[mine.length - 1]); }
    }
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !r.talk()?.running) return;
    if (document.querySelector("dialog[open], :popover-open") || document.body.classList.contains("drawer")) return;
    event.preventDefault();
    act.stop().catch(r.failed);
  });

  if (document.readyState === "complete") r.mountConversation(); else document.addEventListener("DOMContentLoaded", r.mountConversation);
})();
