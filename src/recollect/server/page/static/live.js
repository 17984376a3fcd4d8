"use strict";
/* Forwards events of the server to this window. */
(() => {
  const r = window.recollect;
  const { worker: url, place: cursor } = document.body.dataset;
  r.isOffline = false;
  function onEvent({ type, data }) {
    if (type === "change") r.emit("change", data);
    else if (type === "ready") {   /* sent once; `missed` if there were events since this page was rendered */
      if (data.missed) r.reloadSessions?.();
      if (r.current) r.emit("change", { session: r.current, revision: null, running: r.view()?.running });
    }
    else if (type === "progress") r.progress(data);
    else if (type === "ended") r.ended(data);
    else if (type === "offline") { r.isOffline = true; r.emit("offline"); }
    else if (type === "online") { r.isOffline = false; r.emit("online"); }
  }
  let post;
  function begin() {
    listen();
    document.addEventListener("recollect:opened", announce);
    setInterval(announce, 45000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) { announce(); r.refresh?.(); } });
    addEventListener("pagehide", () => post({ bye: true }));
    addEventListener("pageshow", (event) => { if (event.persisted) { announce(); r.refresh?.(); } });
    announce();
  }
  function listen() {
    if (!window.SharedWorker) { runInPage(); return; }
    const worker = new SharedWorker(url, { name: "recollect" });
    worker.port.onmessage = ({ data }) => onEvent(data);
    worker.port.start();
    post = (message) => worker.port.postMessage(message);
  }
  function runInPage() {
    const queue = [];
    post = (message) => queue.push(message);
    const script = document.createElement("script");
    script.src = url;
    script.addEventListener("load", () => {
      const hub = window.recollectHub(onEvent);
      post = (message) => hub.receive("here", message);
      queue.forEach(post);
    });
    document.head.append(script);
  }
  const announce = () => post({ session: r.current, cursor });
  /* Start after the conversation is mounted: a shared worker that already runs sends events at once, and they would be lost. */
  if (document.readyState === "complete") begin(); else document.addEventListener("DOMContentLoaded", begin);
})();
