// Key filters of a group: its rules, edited as a list, with a preview of the members they concern.

import { askFirst } from "../dialog.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { ask, at } from "../rest.js";
import { answered, table } from "../table.js";
import { mayAct } from "./login.js";

export function drawFilters(app, { group }) {
  const path = at("/v1/filters", { group });
  const answer = app.answers.use(path);
  const choice = app.choice(`filters of ${group}`, () => ({ draft: null, problem: "" }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "filters" },
    h("h2", { id: "filters" }, "Key filters"),
    h("p", { class: "soft" }, "The first rule that matches the client.id of a member says which keys it takes; * stands for any characters, ? for one. Without a rule the client's own declaration counts, and without that a member takes every key."),
    answered(answer, (shown) => (choice.draft ? editor(app, group, choice, shown) : rules(app, group, choice, shown))),
  );
}

function rules(app, group, choice, shown) {
  const columns = [
    { name: "Client", head: true, cell: (it) => h("code", null, it.client_id) },
    { name: "Keys", cell: (it) => it.keys.map((glob) => [h("code", null, glob), " "]) },
  ];
  const edit = () => {
    choice.draft = shown.rules.map((it) => ({ client_id: it.client_id, keys: it.keys.join("\n") }));
    if (choice.draft.length === 0) choice.draft.push({ client_id: "", keys: "" });
    choice.problem = "";
    app.draw();
  };
  const source = shown.source === "rest" ? "set on this node, in place of those of keyway.yaml" : "from keyway.yaml";
  return [
    table({ caption: "Rules of the group", columns, rows: shown.rules, keyOf: (it) => `${it.client_id} ${it.keys.join()}`, empty: "No rule: members take every key, or those their client.id declares." }),
    shown.rules.length > 0 && h("p", { class: "soft" }, `${count(shown.rules.length, "rule")}, ${source}.`),
    mayAct(app) &&
      h(
        "p",
        { class: "actions" },
        h("button", { onclick: edit }, "Edit …"),
        shown.source === "rest" && h("button", { onclick: () => goBack(app, group) }, "Back to keyway.yaml …"),
      ),
  ];
}

function editor(app, group, choice) {
  const { draft } = choice;
  const set = (row, name) => (event) => {
    row[name] = event.target.value;
  };
  const change = (act) => () => {
    act();
    app.draw();
  };
  return h(
    "form",
    { class: "rules", onsubmit: (event) => preview(app, group, choice, event) },
    draft.map((row, index) =>
      h(
        "fieldset",
        { key: `rule ${index}` },
        h("legend", null, `Rule ${index + 1}`),
        h("label", { for: `client-${index}` }, "client.id"),
        h("input", { id: `client-${index}`, value: row.client_id, required: true, spellcheck: "false", oninput: set(row, "client_id") }),
        h("label", { for: `keys-${index}` }, "Keys, one glob a line"),
        h("textarea", { id: `keys-${index}`, rows: 3, value: row.keys, required: true, spellcheck: "false", oninput: set(row, "keys") }),
        h("button", { type: "button", onclick: change(() => draft.splice(index, 1)) }, `Remove rule ${index + 1}`),
      ),
    ),
    choice.problem && h("p", { class: "problem", role: "alert" }, choice.problem),
    h(
      "p",
      { class: "actions" },
      h("button", { type: "button", onclick: change(() => draft.push({ client_id: "", keys: "" })) }, "Add a rule"),
      h("button", { type: "button", onclick: change(() => { choice.draft = null; }) }, "Cancel"),
      h("button", { class: "primary" }, "Preview …"),
    ),
  );
}

function rulesOf(draft) {
  return draft.map(({ client_id, keys }) => ({
    client_id,
    keys: keys.split("\n").filter((glob) => glob !== ""),
  }));
}

async function preview(app, group, choice, event) {
  event.preventDefault();
  const rules = rulesOf(choice.draft);
  try {
    const effect = await ask("POST", at("/v1/filters/preview", { group }), { rules });
    choice.problem = "";
    askFirst({
      title: `Set ${count(rules.length, "rule")} for ${group}?`,
      verb: "Set the rules",
      effect: effectOf(effect),
      act: async () => {
        await ask("PUT", at("/v1/filters", { group }), { rules });
        choice.draft = null;
        return `${count(rules.length, "rule")} set for ${group}.`;
      },
      done: app.refresh,
    });
  } catch (problem) {
    choice.problem = problem.message;
  }
  app.draw();
}

async function goBack(app, group) {
  const effect = await ask("POST", at("/v1/filters/preview", { group }), { rules: null }).catch(() => null);
  askFirst({
    title: `Remove the rules of ${group}?`,
    verb: "Remove them",
    effect: [h("p", null, "The rules of keyway.yaml count again."), effect && effectOf(effect)],
    act: async () => {
      await ask("DELETE", at("/v1/filters", { group }));
      return `The rules of keyway.yaml count for ${group}.`;
    },
    done: app.refresh,
  });
}

/** The members whose keys change, and the keys in memory that change their owner. */
function effectOf({ members, keys }) {
  const changed = members.filter((it) => it.before.join("\n") !== it.after.join("\n"));
  const globs = (list) => (list.length === 0 ? "every key" : list.map((glob) => [h("code", null, glob), " "]));
  const columns = [
    { name: "Member", head: true, cell: (it) => it.client_id },
    { name: "Takes now", cell: (it) => globs(it.before) },
    { name: "Will take", cell: (it) => globs(it.after) },
  ];
  return [
    h(
      "p",
      { "data-moved": keys.moved },
      `Of ${count(keys.known, "key")} with unsettled records in memory, ${keys.moved} change their owner`,
      keys.dropped > 0 ? `, and ${keys.dropped} get none: their records count as settled.` : ".",
    ),
    table({ caption: "Members whose keys change", columns, rows: changed, keyOf: (it) => it.member_id, empty: "No member of now takes other keys than before." }),
  ];
}
