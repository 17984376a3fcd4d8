"use strict";
/* What happens elsewhere, told to this window. */
(() => {
  const r = window.recollect;
  const { worker: url, place } = document.body.dataset;
  r.isOffline = false;
  function heard({ type, data }) {
    if (type === "change") r.emit("change", data);
    else if (type === "ready") {   /* what happened since this page was made */
      if (data.missed) r.reloadSessions?.();
      if (r.current) r.emit("change", { session: r.current, revision: null, running: r.talk()?.running });
    }
    else if (type === "progress") r.progress(data);
    else if (type === "ended") r.ended(data);
    else if (type === "offline") { r.isOffline = true; r.emit("offline"); }
    else if (type === "online") { r.isOffline = false; r.emit("online"); }
  }
  let tell;
  function begin() {
    listen();
    document.addEventListener("recollect:opened", present);
    setInterval(present, 45000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) { present(); r.refresh?.(); } });
    addEventListener("pagehide", () => tell({ bye: true }));
    addEventListener("pageshow", (event) => { if (event.persisted) { present(); r.refresh?.(); } });
    present();
  }
  function listen() {
    if (!window.SharedWorker) { alone(); return; }
    const worker = new SharedWorker(url, { name: "recollect" });
    worker.port.onmessage = ({ data }) => heard(data);
    worker.port.start();
    tell = (message) => worker.port.postMessage(message);
  }
  function alone() {
    const waiting = [];
    tell = (message) => waiting.push(message);
    const script = document.createElement("script");
    script.src = url;
    script.addEventListener("load", () => {
      const hub = window.recollectHub(heard);
      tell = (message) => hub.take("here", message);
      waiting.forEach(tell);
    });
    document.head.append(script);
  }
  const present = () => tell({ session: r.current, place });
  /* What is told before the conversation is there would be lost: another window's worker answers at once. */
  if (document.readyState === "complete") begin(); else document.addEventListener("DOMContentLoaded", begin);
})();
