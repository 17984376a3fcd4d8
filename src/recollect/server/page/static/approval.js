"use strict";
/* A tool that waits for approval: the four buttons of its card. The card goes when the question is answered, by whomever. */
(() => {
  const r = window.recollect;
  r.actions["approve"] = async (button) => {
    const { session } = r.talk(), buttons = button.closest(".approval").querySelectorAll("button");
    for (const each of buttons) each.disabled = true;
    try {
      const url = "/api/v1/sessions/" + encodeURIComponent(session) + "/approval";
      await r.send("POST", url, { id: button.dataset.approval, decision: button.dataset.decision });
    } catch (error) {
      for (const each of buttons) each.disabled = false;
      r.failed(error);
    }
    r.refresh();
  };
})();
