// The settings of a group: their values, where each comes from, a change of those in Kafka, its end.

import { askFirst } from "../dialog.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { ask, at, groupPath } from "../rest.js";
import { answered, table } from "../table.js";
import { mayAct } from "./login.js";

const ORIGINS = { kafka: "set in Kafka", "keyway.yaml": "keyway.yaml", default: "default" };

export function drawSettings(app, described) {
  const { group } = described;
  const answer = app.answers.use(at("/v1/settings", { group }));
  return [
    h(
      "section",
      { class: "panel", "aria-labelledby": "settings" },
      h("h2", { id: "settings" }, "Settings"),
      h("p", { class: "soft" }, "Those with a name in Kafka are changed here or with kafka-configs.sh --entity-type groups, and count at once. All others are in keyway.yaml."),
      answered(answer, ({ settings }) => shown(app, group, settings)),
    ),
    mayDelete(app) && end(app, described),
  ];
}

function shown(app, group, settings) {
  const columns = [
    { name: "Setting", head: true, cell: (it) => h("code", null, it.name) },
    { name: "Value", cell: (it) => valueText(it.value) },
    { name: "From", cell: (it) => ORIGINS[it.origin] ?? it.origin },
    { name: "In Kafka", wide: true, cell: (it) => it.kafka_name && h("code", null, it.kafka_name) },
    { name: h("span", { class: "hidden" }, "Change"), cell: (it) => it.kafka_name && mayAct(app) && changes(app, group, it) },
  ];
  return table({ caption: "Settings of the group", columns, rows: settings, keyOf: (it) => it.name, empty: "" });
}

function valueText(value) {
  return value === null ? "none" : String(value);
}

function changes(app, group, setting) {
  return [
    h("button", { class: "link", "aria-label": `change ${setting.name}`, onclick: () => change(app, group, setting) }, "change"),
    setting.origin === "kafka" && [
      " ",
      h("button", { class: "link", "aria-label": `take ${setting.name} out of Kafka`, onclick: () => takeOut(app, group, setting) }, "back to the file"),
    ],
  ];
}

function change(app, group, setting) {
  const input = h("input", { id: "setting", value: valueText(setting.value), spellcheck: "false" });
  askFirst({
    title: `Change ${setting.name} of ${group}?`,
    verb: "Set it",
    effect: [h("label", { for: "setting" }, `${setting.kafka_name} in Kafka`), input],
    act: () => put(group, { [setting.name]: input.value.trim() }, `${setting.name} is set.`),
    done: app.refresh,
  });
}

function takeOut(app, group, setting) {
  askFirst({
    title: `Take ${setting.name} of ${group} out of Kafka?`,
    verb: "Take it out",
    effect: h("p", null, `${setting.kafka_name} is removed from the group; the value of keyway.yaml or the default counts again.`),
    act: () => put(group, { [setting.name]: null }, `${setting.name} is no longer set in Kafka.`),
    done: app.refresh,
  });
}

async function put(group, values, said) {
  await ask("PUT", at("/v1/settings", { group }), { values });
  return said;
}

function mayDelete(app) {
  return !app.who?.role || app.who.role === "admin";
}

function end(app, described) {
  const { group } = described;
  const members = described.memberships.length;
  return h(
    "section",
    { class: "panel", "aria-labelledby": "end" },
    h("h2", { id: "end" }, "Delete the group"),
    members > 0
      ? h("p", { class: "soft" }, `It has ${count(members, "member")}: a group is deleted when nobody is in it.`)
      : h("p", { class: "actions" }, h("button", { class: "danger", onclick: () => remove(app, group) }, "Delete …")),
  );
}

function remove(app, group) {
  askFirst({
    title: `Delete ${group}?`,
    verb: "Delete it",
    danger: true,
    effect: h("p", null, "Its positions, its parked records' state and its key filters are gone for good. Members that come back start as a new group does. The records stay in Kafka."),
    act: async () => {
      await ask("DELETE", groupPath(group));
      app.goTo("/groups");
      return `${group} is deleted.`;
    },
    done: app.refresh,
  });
}
