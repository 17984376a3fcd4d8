"use strict";
/* The buttons of a tool call that waits for approval. The card disappears when any client has answered. */
(() => {
  const r = window.recollect;
  r.actions["approve"] = async (button) => {
    const { session } = r.view(), buttons = button.closest(".approval").querySelectorAll("button");
    for (const each of buttons) each.disabled = true;
    try {
      const url = "/api/v1/sessions/" + r.segment(session) + "/approval";
      await r.send("POST", url, { id: button.dataset.approval, decision: button.dataset.decision });
    } catch (error) {
      for (const each of buttons) each.disabled = false;
      r.failed(error);
    }
    r.refresh();
  };
})();
