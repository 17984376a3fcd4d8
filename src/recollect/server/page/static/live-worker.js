"use strict";
/* One event stream for all windows of a browser, because a browser opens at most six HTTP/1.1 connections to one server.
   It runs in a shared worker, or in the page if the browser has none. */
self.recollectHub = (broadcast) => {
  const windows = new Map();   /* port -> { session, cursor, lastSeen }; the cursor is the last event before the page was rendered */
  let source = null, live = null;   /* the newest stream, and the last one that opened; at most two exist */
  let opened = "", last = "", offline = false, offlineTimer = 0, silenceTimer = 0;
  /* The open sessions, as many as fit into the URL of a request: ids may have 1,024 bytes. */
  const sessions = () => {
    const names = [...new Set([...windows.values()].map((entry) => entry.session).filter(Boolean))].sort().slice(0, 50);
    let length = 0;
    return names.filter((name) => (length += encodeURIComponent(name).length + 6) < 12000);   /* characters; the server accepts 16,384 bytes of headers */
  };
  /* Return whether a window's page was rendered before the latest event. */
  const isBehind = (cursor = "") => { const [name, count] = cursor.split("."), [now, lastCount] = last.split("."); return name !== now || Number(count) < Number(lastCount); };
  const ready = (port) => broadcast({ type: "ready", data: { missed: isBehind(windows.get(port).cursor) } }, port);
  function setOffline(now) { if (offline !== now) { offline = now; broadcast({ type: now ? "offline" : "online" }); } }
  function resetSilence() { clearTimeout(silenceTimer); silenceTimer = setTimeout(() => { suspectOffline(); connect(true); }, 35000); }   /* milliseconds: three heartbeats of the server, and a margin */
  function suspectOffline() { if (!offlineTimer && !offline) offlineTimer = setTimeout(() => { offlineTimer = 0; setOffline(true); }, 700); }   /* milliseconds: a brief interruption is not shown */
  function confirmOnline() { clearTimeout(offlineTimer); offlineTimer = 0; setOffline(false); }
  function connect(again) {
    const query = new URLSearchParams(sessions().map((name) => ["open", name]));
    const key = query.toString();
    if (source && key === opened && !again) return;
    opened = key;
    if (last) query.append("after", last);
    if (source !== live) source?.close();
    const mine = source = new EventSource("/events?" + query);
    const forward = (type) => mine.addEventListener(type, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      resetSilence();
      /* The previous stream may be the only one that sends an end or a change. The new one sends the whole answer. */
      if (mine === source || type === "ended" || type === "change") broadcast({ type, data: JSON.parse(event.data) });
    });
    const closeOthers = () => { if (live !== mine) live?.close(); live = mine; };
    mine.addEventListener("open", closeOthers);
    mine.addEventListener("hello", (event) => {
      if (event.lastEventId) last = event.lastEventId;
      resetSilence();
      const missed = JSON.parse(event.data).missed && started;
      const back = offline;
      if (!started) for (const port of windows.keys()) ready(port);
      started = true;
      confirmOnline();
      if (missed && !back) broadcast({ type: "online" });
    });
    for (const type of ["change", "progress", "ended", "ping"]) forward(type);
    mine.addEventListener("error", () => {
      if (mine !== source) { mine.close(); return; }
      suspectOffline();
      closeOthers();
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) connect(true); }, 1500);
    });
  }
  let started = false;
  return {
    receive(port, message) {
      if (message.bye) windows.delete(port);
      else {
        const fresh = !windows.has(port);
        windows.set(port, { session: message.session, cursor: message.cursor, lastSeen: Date.now() });
        if (!started) last ||= message.cursor || "";   /* start where the first page was rendered */
        if (fresh && offline) broadcast({ type: "offline" }, port);
        else if (fresh && started) ready(port);
      }
      /* A window announces itself every 45 seconds (live.js). One that is silent for four times as long was closed. */
      for (const [other, entry] of windows) if (Date.now() - entry.lastSeen > 180000) windows.delete(other);
      connect(false);
    },
    windows,
  };
};
if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const hub = self.recollectHub((message, only) => { for (const port of only ? [only] : hub.windows.keys()) port.postMessage(message); });
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => hub.receive(port, data);
    port.start();
  };
}
