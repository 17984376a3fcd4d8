"use strict";
/* The composer: text, files, commands, editing, Send and Stop. Typed text is never lost. */
(() => {
  const r = window.recollect;
  const $ = (id) => document.getElementById(id);
  const act = r.actions;
  const path = (session, rest) => "/page/conversation/" + r.segment(session) + rest;
  /* Texts by session in localStorage. A text that localStorage refuses (full or disabled) stays in this window. */
  const storedTexts = (name) => ({
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
  const drafts = storedTexts("draft"), sends = storedTexts("sending");   /* a message being sent keeps its idempotency key across a reload */
  let state = null;   /* session, files, editing, sending */
  const pictures = new WeakMap();   /* object URLs of chosen images */
  const states = new Map();   /* state by session: unsent files, the message being sent */

  document.addEventListener("recollect:mounted", ({ detail }) => {
    const form = $("composer"), text = $("composer-text");
    if (!states.has(detail.session)) states.set(detail.session, { session: detail.session, files: [], refused: [], sending: false, last: JSON.parse(sends.get(detail.session) || "null") });
    state = Object.assign(states.get(detail.session), { editing: null, form, text, chosen: -1,
      commands: JSON.parse(form.dataset.commands), most: Number(form.dataset.most), largest: Number(form.dataset.largest), total: Number(form.dataset.total) });
    form.classList.toggle("sending", state.sending);
    text.value = drafts.get(state.session);
    text.addEventListener("input", () => { grow(); if (!state.editing) drafts.set(state.session, text.value); remember(state, null); complete(); note(); });
    text.addEventListener("keydown", keys);
    text.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files || [])];
      const words = files.length ? "" : event.clipboardData?.getData("text/plain") || "";
      if (files.length) { event.preventDefault(); add(files); }
      else if (words.length > MAX_FIELD && !state.editing) {
        event.preventDefault();
        add([new File([words], "pasted text.txt", { type: "text/plain" })]);
        r.toast(`The pasted text has ${words.length.toLocaleString("en-US")} characters, too many for the message box. It is attached as a file.`, { seconds: 8 });
      }
    });
    text.addEventListener("blur", () => setTimeout(() => { if (document.activeElement !== $("composer-text")) closeCompletions(); }, 120));
    form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
    $("file").addEventListener("change", (event) => { add([...event.target.files]); event.target.value = ""; });
    grow(); preview(); showRefused();
  });

  const MAX_FIELD = 1_000_000;   /* characters. Chromium takes seconds per key press to lay out more. */
  const MAX_AUTO_GROW = 20_000;   /* characters. Measuring more on each key press takes longer than a frame. */
  function grow() {
    const text = state.text;
    const line = parseFloat(getComputedStyle(text).lineHeight) || 24;
    const most = line * 10 + 16, long = text.value.length > MAX_AUTO_GROW;
    if (!long) text.style.height = "auto";
    text.style.height = (long ? most : Math.min(text.scrollHeight, most)) + "px";
    text.style.overflowY = long || text.scrollHeight > most ? "auto" : "hidden";
  }
  function put(value) { state.text.value = value; grow(); if (!state.editing) drafts.set(state.session, value); note(); }
  r.saveDraft = (session, value) => { if (state?.session === session) r.compose(value); else drafts.set(session, value); };
  r.compose = (value) => { if (!state) return; put(value); state.text.focus(); state.text.setSelectionRange(value.length, value.length); };

  /* --- limits -------------------------------------------------------------------------------------------------- */
  const exact = (bytes) => bytes.toLocaleString("en-US") + " bytes";
  /* Return the size of the request body in bytes. A form encodes a line end as two bytes; JSON adds escapes. */
  function messageBytes({ text: { value }, editing, files, total }) {
    if (editing) return value.length * 6 < total ? 0 : new Blob([JSON.stringify(value)]).size;
    const attached = files.reduce((sum, file) => sum + file.size, 0);
    return attached + (value.length * 4 + attached < total ? value.length : new Blob([value.replaceAll("\n", "\r\n")]).size);
  }
  function sizeError(mine) {
    const bytes = messageBytes(mine);
    return bytes <= mine.total ? "" : `This message is too large: ${exact(bytes)}${mine.files.length ? " including files" : ""}. The limit is ${size(mine.total)} (${exact(mine.total)}). Shorten it or split it.`;
  }
  /* Show the note below the message box as long as it applies. */
  function note() {
    const problem = sizeError(state), place = $("composer-note");
    const unsaved = drafts.unsaved.has(state.session) && !state.editing;
    place.hidden = !problem && !unsaved;
    place.classList.toggle("failed", !!problem);
    place.textContent = problem || (unsaved ? "This draft is too large for the browser to store. Send it before you close or reload this window." : "");
    $("send").setAttribute("aria-disabled", String(!!problem));
    removeEventListener("beforeunload", confirmUnload);
    if (drafts.unsaved.size) addEventListener("beforeunload", confirmUnload);
  }
  const confirmUnload = (event) => { if (drafts.unsaved.size) event.preventDefault(); };   /* the browser asks for confirmation */

  /* --- files --------------------------------------------------------------------------------------------------- */
  const size = (bytes) => bytes < 1000 ? bytes + " B" : bytes < 1e6 ? (bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0) + " kB" : (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB";
  function add(files) {
    if (!state) return;
    for (const file of files) {
      const reason = state.editing ? "An edited message keeps its files"
        : file.size > state.largest ? `Larger than ${size(state.largest)} (${exact(state.largest)})`
        : state.files.length >= state.most ? `A message can have at most ${state.most} files` : "";
      if (reason) state.refused.push({ reason, name: file.size > state.largest ? `${file.name} (${exact(file.size)})` : file.name });
      else state.files.push(file);
    }
    preview(); showRefused();
    state.text.focus();
  }
  /* List the files that were not added, by reason, until dismissed. */
  function showRefused() {
    const { refused } = state, place = $("refused");
    place.hidden = !refused.length;
    place.querySelector("strong").textContent = refused.length === 1 ? "1 file was not added" : `${refused.length} files were not added`;
    const reasons = [...new Set(refused.map(({ reason }) => reason))].map((reason) => {
      const row = document.createElement("p");
      row.textContent = `${reason}: ${refused.filter((file) => file.reason === reason).map(({ name }) => name).join(", ")}.`;
      return row;
    });
    place.querySelector(".refused-files").replaceChildren(...reasons);
  }
  act["dismiss-refused"] = () => { state.refused = []; showRefused(); state.text.focus(); };
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
  const hasFiles = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  document.addEventListener("dragover", (event) => { if (hasFiles(event) && state && $("composer") && !document.querySelector("dialog[open]")) { event.preventDefault(); $("conversation").classList.add("dropping"); } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("conversation").classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    $("conversation").classList.remove("dropping");
    if (!hasFiles(event) || !state || !$("composer") || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });

  /* --- sending ------------------------------------------------------------------------------------------------- */
  const isCommand = (text) => /^\/[a-z][^\s/]*(\s|$)/i.test(text.trim()) && !text.trim().includes("\n");
  async function submit(takeOver = false) {
    const text = state.text.value, mine = state, { editing } = mine, files = [...mine.files];
    closeCompletions();
    stopWaiting();
    if (mine.sending) { mine.next = text; return; }
    if (!text.trim() && !files.length) return;
    if (sizeError(mine)) { note(); mine.text.focus(); return; }
    if (isCommand(text) && !editing && !files.length) { await command(text).catch(r.failed); submitNext(mine, text); return; }
    if (r.isAnswering("Your text is kept.")) return;
    setSending(mine, true);
    /* A message that is sent again after a lost response keeps its key, so that it is stored once. */
    const content = JSON.stringify([digest(text), editing, files.map((file) => [file.name, file.size, file.lastModified])]);
    if (mine.last?.content !== content) remember(mine, { content, key: r.key() });
    const headers = { "Idempotency-Key": mine.last.key };
    let started;
    try {
      if (editing) started = await r.send("POST", path(mine.session, "/edit"), { message: editing, text }, { headers });
      else {
        const form = new FormData();
        form.append("text", text);
        for (const file of files) form.append("files", file, file.name);
        if (takeOver) form.append("take_over", "yes");
        started = await r.send("POST", path(mine.session, "/say"), form, { headers });
      }
      remember(mine, null);
      onSent(mine, { text, editing, files, turn: started.turn });
    } catch (error) { if (r.isBusy(error) && state === mine) offerWhenBusy(error, mine); else r.failed(error.offline ? new Error("Can't reach the server. Your text is kept. Send it again when the server is back.") : error); }
    finally { setSending(mine, false); }
    submitNext(mine, text);
  }
  /* Send the text that was entered while the previous message was being sent. The same text entered twice is sent once. */
  function submitNext(mine, before) {
    const text = mine.next;
    mine.next = undefined;
    if (text && text !== before && state === mine && mine.text.value === text) submit().catch(r.failed);
  }
  /* Return a short hash of a text (cyrb53), so that a long text is not stored twice. */
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
  function setSending(mine, now) { mine.sending = now; mine.form.classList.toggle("sending", now); }
  r.isSending = (session) => !!states.get(session)?.sending;

  /* Another window or program answers in this conversation: offer to wait, take over or fork. Keep the typed text. */
  let waiting = 0;
  function stopWaiting() { clearInterval(waiting); waiting = 0; }
  function offerWhenBusy(error, mine) {
    notice("<p></p>", true);
    const box = document.querySelector("#notices .notice"), words = box.querySelector("p"), row = document.createElement("div");
    words.textContent = r.words(error) + " Your text is kept.";
    row.className = "row notice-actions";
    const offer = (label, run) => {
      const button = document.createElement("button");
      button.type = "button"; button.className = "button compact"; button.textContent = label;
      button.addEventListener("click", () => Promise.resolve(run(button)).catch(r.failed));
      row.append(button);
    };
    offer("Send when done", () => {
      words.textContent = "Your message will be sent when the other answer is complete.";
      row.replaceChildren();
      offer("Cancel", () => { stopWaiting(); notice(""); state.text.focus(); });
      waiting = setInterval(() => r.refresh(), 3000);
      r.refresh();
    });
    if (!mine.editing) offer("Take over", () => submit(true));
    if (!mine.editing && !mine.files.length) offer("Send in a fork", async () => {
      const text = mine.text.value, still = r.beginNavigation();
      const { session } = await r.send("POST", path(mine.session, "/fork"), { message: null }, { headers: { "Idempotency-Key": r.key() } });
      drafts.set(session, text);
      clearSent(mine, text);
      if (!still()) return;   /* the text is the draft of the fork */
      await r.open(session);
      if (state.session === session) await submit();
    });
    words.after(row);
  }
  document.addEventListener("recollect:refreshed", ({ detail }) => {
    if (!waiting || !state || detail.session !== state.session || r.view().running) return;
    if (!document.querySelector("#messages > .message:last-of-type .ending.open")) submit().catch(r.failed);
  });
  document.addEventListener("recollect:leaving", stopWaiting);
  /* Clear a sent text in the message box and in the drafts. Leave text that was typed after it. */
  function clearSent(mine, text) {
    if (drafts.get(mine.session) === text) drafts.set(mine.session, "");
    if (state === mine && mine.text.value === text && !mine.editing) put("");
  }
  function onSent(mine, { text, editing, files, turn }) {
    const edited = editing && mine.editing === editing;
    if (edited) { mine.editing = null; if (state === mine && mine.text.value === text) put(drafts.get(mine.session)); }
    if (!editing) { mine.files = mine.files.filter((file) => !files.includes(file)); clearSent(mine, text); }
    if (state !== mine) return;
    $("editing").hidden = !mine.editing;
    preview();
    notice("");
    const view = r.view();
    view.atEnd = true;
    r.answering(turn);
    r.refresh().then(() => { if (r.view() === view) act["to-end"](); });
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
    const matches = matching(), place = $("completions");
    state.chosen = matches.length ? Math.min(Math.max(state.chosen, 0), matches.length - 1) : -1;
    place.hidden = !matches.length;
    state.text.setAttribute("aria-expanded", String(!!matches.length));
    place.replaceChildren(...matches.map(([name, argument, help], index) => {
      const row = document.createElement("button");
      row.type = "button";
      row.id = "completion-" + name;
      row.tabIndex = -1;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(index === state.chosen));
      const word = document.createElement("code");
      word.textContent = "/" + name + (argument ? " " + argument : "");
      const description = document.createElement("span");
      description.className = "faint";
      description.textContent = help;
      row.append(word, description);
      row.addEventListener("pointerdown", (event) => { event.preventDefault(); acceptCompletion(name, argument); });
      return row;
    }));
    if (matches.length) {
      state.text.setAttribute("aria-activedescendant", "completion-" + matches[state.chosen][0]);
      place.children[state.chosen].scrollIntoView({ block: "nearest" });
    } else state.text.removeAttribute("aria-activedescendant");
  }
  function closeCompletions() { const place = $("completions"); if (place) { place.hidden = true; state.chosen = -1; } }
  function acceptCompletion(name, argument) {
    if (argument && !argument.startsWith("[")) { put("/" + name + " "); closeCompletions(); state.text.focus(); return; }
    put("/" + name);
    submit();
  }
  async function command(text) {
    const mine = state, line = text.trim();
    if (/^\/new\b/i.test(line) && !line.includes(" ")) { put(""); await r.startConversation(); return; }
    setSending(mine, true);
    const still = r.beginNavigation();
    let done;
    try { done = await r.send("POST", path(mine.session, "/command"), { line }); }
    finally { setSending(mine, false); }
    clearSent(mine, text);
    if (!still() || state !== mine) return;
    if (done.data === "export") { (r.exportDialog || (() => {}))(mine.session); return; }
    if (done.action === "pick") { r.search?.(); return; }
    if (done.action === "quit") { notice("<p>To leave, close this window. The conversation is saved.</p>"); return; }
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
    const matches = $("completions").hidden ? [] : matching();
    if (matches.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      state.chosen = (state.chosen + (event.key === "ArrowDown" ? 1 : -1) + matches.length) % matches.length;
      complete();
    } else if (matches.length && (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey))) {
      event.preventDefault();
      acceptCompletion(matches[state.chosen][0], matches[state.chosen][1]);
    } else if (matches.length && event.key === "Escape") { event.preventDefault(); closeCompletions(); }
    else if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) { event.preventDefault(); submit(); }
    else if (event.key === "Escape" && state.editing) { event.preventDefault(); cancel(); }
    else if (event.key === "ArrowUp" && !state.text.value && !state.editing) {
      const mine = document.querySelectorAll("#messages > article.user");
      if (mine.length) { event.preventDefault(); edit(mine[mine.length - 1]); }
    }
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !r.view()?.running) return;
    if (document.querySelector("dialog[open], :popover-open") || document.body.classList.contains("drawer")) return;
    event.preventDefault();
    act.stop().catch(r.failed);
  });

  if (document.readyState === "complete") r.mountConversation(); else document.addEventListener("DOMContentLoaded", r.mountConversation);
})();
