// Commands of Kafka's own tools for what a view shows, to be copied: a stock tool is a client of the
// gateway like any other.

import { toast } from "./dialog.js";
import { h } from "./dom.js";
import { at } from "./rest.js";
import { answered, chooser } from "./table.js";

const RARELY_MS = 60_000;
const ID = "stock-commands"; // one list a view
const PLAIN = /^[\w.@%+=:,\/-]+$/; // a shell takes such a word as it is

/** `commands`: [{what, words: [tool, ...arguments]}]; hidden until they are asked for. */
export function stockCommands(app, name, commands) {
  const choice = app.choice(`commands of ${name}`, () => ({ chosen: null }));
  const open = choice.chosen === name;
  return h(
    "div",
    { class: "commands", key: "commands" },
    h("p", null, chooser(app, choice, name, "Kafka's own commands", ID)),
    open && list(app, commands),
  );
}

function list(app, commands) {
  const answer = app.answers.use(at("/v1/brokers", { limit: 1 }), { everyMs: RARELY_MS });
  // A token for some groups is not told the brokers.
  const known = answer.problem?.status === 403 ? { data: { bootstrap: null } } : answer;
  return answered(known, ({ bootstrap }) =>
    h(
      "dl",
      { id: ID },
      commands.map(({ what, words: [tool, ...given] }) => {
        const line = [tool, "--bootstrap-server", bootstrap ?? "HOST:9192", ...given].map(quoted).join(" ");
        return h("div", { key: line }, h("dt", null, what), h("dd", null, h("code", null, line), " ", copyButton(what, line)));
      }),
      h("div", { key: "login", class: "soft" }, "If your brokers ask for a login, add --command-config FILE."),
    ),
  );
}

/** One word of a POSIX shell. */
function quoted(word) {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function copyButton(what, line) {
  return h("button", { class: "link", "aria-label": `copy: ${what}`, onclick: (event) => copy(event.target, line) }, "copy");
}

/** Over plain HTTP from another machine a browser has no clipboard: the line is then marked. */
async function copy(button, line) {
  try {
    await navigator.clipboard.writeText(line);
    toast("The command is copied.");
  } catch {
    getSelection().selectAllChildren(button.parentNode.querySelector("code"));
    toast("The command is marked: copy it with the keyboard.");
  }
}
