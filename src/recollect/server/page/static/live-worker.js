"use strict";
/* One event stream for all windows of a browser: a seventh stream to one server would hang. It runs in a shared worker,
   or in the page where there is none. */
self.recollectHub = (broadcast) => {
  const windows = new Map();   /* port -> { session, place, heard } */
  let source = null, live = null;   /* the newest stream, and the last one that opened: there are never more than two */
  let opened = "", last = "", offline = false, doubt = 0, silence = 0;
  const sessions = () => [...new Set([...windows.values()].map((seen) => seen.session).filter(Boolean))].sort().slice(0, 50);
  /* Whether something was told before a window came that its page does not show: it was made before that. */
  const behind = (place = "") => { const [name, count] = place.split("."), [now, told] = last.split("."); return name !== now || Number(count) < Number(told); };
  const ready = (port) => broadcast({ type: "ready", data: { missed: behind(windows.get(port).place) } }, port);
  function state(now) { if (offline !== now) { offline = now; broadcast({ type: now ? "offline" : "online" }); } }
  function heard() { clearTimeout(silence); silence = setTimeout(() => { unsure(); connect(true); }, 35000); }
  function unsure() { if (!doubt && !offline) doubt = setTimeout(() => { doubt = 0; state(true); }, 700); }
  function sure() { clearTimeout(doubt); doubt = 0; state(false); }
  function connect(again) {
    const query = new URLSearchParams(sessions().map((name) => ["open", name]));
    const wanted = query.toString();
    if (source && wanted === opened && !again) return;
    opened = wanted;
    if (last) query.append("after", last);
    if (source !== live) source?.close();
    const mine = source = new EventSource("/events?" + query);
    const told = (type) => mine.addEventListener(type, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      heard();
      /* The stream before may be the only one that tells of an end or a change; of an answer the new one tells all. */
      if (mine === source || type === "ended" || type === "change") broadcast({ type, data: JSON.parse(event.data) });
    });
    const alone = () => { if (live !== mine) live?.close(); live = mine; };
    mine.addEventListener("open", alone);
    mine.addEventListener("hello", (event) => {
      if (event.lastEventId) last = event.lastEventId;
      heard();
      const missed = JSON.parse(event.data).missed && begun;
      const back = offline;
      if (!begun) for (const port of windows.keys()) ready(port);
      begun = true;
      sure();
      if (missed && !back) broadcast({ type: "online" });
    });
    for (const type of ["change", "progress", "ended", "ping"]) told(type);
    mine.addEventListener("error", () => {
      if (mine !== source) { mine.close(); return; }
      unsure();
      alone();
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) connect(true); }, 1500);
    });
  }
  let begun = false;
  return {
    take(port, message) {
      if (message.bye) windows.delete(port);
      else {
        const fresh = !windows.has(port);
        windows.set(port, { session: message.session, place: message.place, heard: Date.now() });
        if (!begun) last ||= message.place || "";   /* the stream begins where the first page was made */
        if (fresh && offline) broadcast({ type: "offline" }, port);
        else if (fresh && begun) ready(port);
      }
      for (const [other, seen] of windows) if (Date.now() - seen.heard > 180000) windows.delete(other);
      connect(false);
    },
    windows,
  };
};
if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const hub = self.recollectHub((message, only) => { for (const port of only ? [only] : hub.windows.keys()) port.postMessage(message); });
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => hub.take(port, data);
    port.start();
  };
}
