// The question before every change: the effect first, then yes or no. The page behind it waits.

import { h, say } from "./dom.js";

/**
 * Shows `effect` (elements) and asks. `act` makes the change and returns a sentence about it; a
 * refusal is shown, and the dialog stays open. Without `act` the change is not to be had, and there
 * is nothing to say yes to.
 */
export function askFirst({ title, effect, verb, danger, act, done }) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const yes = h("button", { class: danger ? "danger" : "primary", type: "button" }, verb);
  const no = h("button", { type: "button" }, act ? "Cancel" : "Close");
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h("h2", { id: "dialog-title" }, title),
    h("div", { class: "effect" }, effect),
    problem,
    h("div", { class: "actions" }, no, act && yes),
  );
  no.onclick = () => dialog.close();
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      toast(await act());
      dialog.close();
      done?.();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      yes.disabled = false;
    }
  };
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
}

/** A sentence that goes by itself. */
export function toast(text) {
  say(text);
  const shown = h("p", { class: "toast", "aria-hidden": "true" }, text);
  document.body.append(shown);
  setTimeout(() => shown.remove(), 6_000);
}
