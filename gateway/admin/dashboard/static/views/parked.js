// Parked records: chosen, then retried, skipped or sent to the dead letters, after a preview.

import { askFirst, toast } from "../dialog.js";
import { h, labelled } from "../dom.js";
import { bytes, count, duration, some, whole } from "../format.js";
import { ask, at } from "../rest.js";
import { stockCommands } from "../stock_tool.js";
import { answered, table } from "../table.js";
import { keyName } from "./keys.js";
import { mayAct } from "./login.js";

const SHOWN = 200;

/** Why a record can be poison, as REST says it. */
const REASONS = ["rejected", "released", "lock_timeout", "session_closed", "member_left", "member_evicted", "gap_ack"];

const ACTIONS = {
  retry: {
    verb: "Release",
    said: (number) => `${count(number, "record")} will be delivered once more. If that fails, too, the record parks again.`,
    done: (number) => `${count(number, "record")} released.`,
  },
  skip: {
    verb: "Skip",
    danger: true,
    said: (number) => `${count(number, "record")} will count as settled. The group never gets ${number === 1 ? "it" : "them"} again.`,
    done: (number) => `${count(number, "record")} skipped.`,
  },
  dead_letter: {
    verb: "Dead-letter",
    danger: true,
    said: (number) => `${count(number, "record")} will be written to the dead-letter topic, and then count as settled.`,
    done: (number) => `${count(number, "record")} on the way to the dead letters.`,
  },
};

export function drawParked(app, described) {
  const { group } = described;
  const choice = app.choice(`parked of ${group}`, () => ({ reason: "", key: "", chosen: new Set(), details: new Map(), values: new Map() }));
  const answer = app.answers.use(at("/v1/parked", { group, ...narrowed(choice) }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "parked" },
    h("h2", { id: "parked" }, "Parked records"),
    h("p", { class: "soft" }, "The rest of each key waits behind its parked record. Other keys go on."),
    described.partitions.some((it) => it.full_span?.limit === "held_max") &&
      h("p", { class: "warn" }, "So many records wait that some partitions have stopped (held_max): decide about some."),
    (described.parked > 1 || choice.reason || choice.key) && narrowing(app, choice),
    answered(answer, (shown) => content(app, described, shown, choice)),
  );
}

/** The fields of REST that leave only some of the records. */
function narrowed({ reason, key }) {
  return { reason: reason || undefined, key: key || undefined };
}

function narrowing(app, choice) {
  const set = (name) => (event) => {
    choice[name] = event.target.value;
    app.draw();
  };
  const reasons = [["", "any reason"], ...REASONS.map((it) => [it, it.replaceAll("_", " ")])];
  return h(
    "form",
    { class: "seek", "aria-label": "Show only some", onsubmit: (event) => event.preventDefault() },
    labelled("parked-reason", "Reason", h("select", { id: "parked-reason", value: choice.reason, onchange: set("reason") }, reasons.map(([value, name]) => h("option", { value, selected: value === choice.reason }, name)))),
    app.who?.keys && labelled("parked-key", "Key (* and ? stand for any characters)", h("input", { id: "parked-key", type: "search", placeholder: "all keys, then Enter", spellcheck: "false", value: choice.key, onchange: set("key") })),
  );
}

function content(app, described, { parked, next }, choice) {
  const there = new Set(parked.map(nameOf));
  for (const known of [choice.chosen, choice.details, choice.values]) {
    for (const name of known.keys()) if (!there.has(name)) known.delete(name);
  }
  const some = Boolean(choice.reason || choice.key);
  if (parked.length === 0) return h("p", { class: "empty" }, some ? "No parked record has this reason and key." : "No record is parked.");
  const chosen = parked.filter((it) => choice.chosen.has(nameOf(it)));
  return [
    mayAct(app) ? actions(app, described, chosen, choice, some || !next ? parked.length : described.parked) : h("p", { class: "soft" }, "Your role may look, and not decide."),
    table({
      caption: "Parked records",
      columns: columns(app, described, parked, choice),
      rows: parked.slice(0, SHOWN),
      keyOf: nameOf,
      empty: "",
    }),
    (parked.length > SHOWN || next) && h("p", { class: "soft" }, `The first ${Math.min(SHOWN, parked.length)} of ${next ? "more than " : ""}${whole(parked.length)} are shown.`),
    stockCommands(app, `parked of ${described.group}`, [recordCommand(chosen[0] ?? parked[0])]),
  ];
}

function recordCommand({ topic, partition, offset }) {
  const place = ["--topic", topic, "--partition", String(partition), "--offset", String(offset), "--max-messages", "1"];
  const more = ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"];
  return { what: `The record ${topic}-${partition} @ ${whole(offset)}`, words: ["kafka-console-consumer.sh", ...place, ...more] };
}

function nameOf(row) {
  return `${row.topic}-${row.partition} ${row.offset}`;
}

function actions(app, described, chosen, choice, parked) {
  const button = (action, words, disabled, act) => h("button", { key: words, disabled, onclick: act }, `${words} …`);
  return [
    h(
      "p",
      { class: "actions" },
      h("span", { class: "soft" }, chosen.length === 0 ? "Choose records to decide about them." : `${whole(chosen.length)} chosen`),
      Object.entries(ACTIONS).map(([action, { verb }]) =>
        button(action, verb, chosen.length === 0, () => decide(app, described.group, action, chosen, choice)),
      ),
    ),
    parked > 1 &&
      h(
        "p",
        { class: "actions" },
        h("span", { class: "soft" }, choice.reason || choice.key ? "Or decide about all with this reason and key:" : "Or decide about all of the group:"),
        Object.entries(ACTIONS).map(([action, { verb }]) =>
          button(action, `${verb} all`, false, () => decideAll(app, described.group, action, parked, choice)),
        ),
      ),
  ];
}

function columns(app, described, parked, choice) {
  const clients = new Map(described.memberships.map((it) => [it.member_id, it.client_id]));
  const turn = (name) => {
    if (!choice.chosen.delete(name)) choice.chosen.add(name);
    app.draw();
  };
  const box = (row) =>
    h("input", {
      type: "checkbox",
      "aria-label": `choose ${nameOf(row)}`,
      checked: choice.chosen.has(nameOf(row)),
      onchange: () => turn(nameOf(row)),
    });
  return [
    { name: everyBox(app, parked.slice(0, SHOWN), choice), cell: box },
    { name: "Record", head: true, cell: (it) => `${it.topic}-${it.partition} @ ${whole(it.offset)}` },
    {
      name: "Key",
      cell: (it) => [
        keyName(it),
        app.who?.keys && detailsOf(app, described.group, it, choice),
        app.who?.values && valueOf(app, described.group, it, choice),
      ],
    },
    { name: "Reason", cell: (it) => it.reason.replaceAll("_", " ") },
    { name: "Since", number: true, cell: (it) => ago(app, it.since_ms) },
    { name: "Waiting behind", number: true, cell: (it) => whole(it.behind) },
    { name: "Deliveries", number: true, wide: true, cell: (it) => whole(it.deliveries) },
    { name: "Last member", wide: true, cell: (it) => clients.get(it.member_id) ?? it.member_id },
  ];
}

function ago(app, atMs) {
  return app.overview ? duration(Math.max(0, app.overview.at_ms - atMs)) : "–";
}

/** A button; and after a press the record's time and headers, which the node reads from Kafka. */
function detailsOf(app, group, row, choice) {
  const known = choice.details.get(nameOf(row));
  if (!known) return asking(`show the time and headers of ${nameOf(row)}`, "details", () => look(app, choice.details, row, () => readDetails(group, row)));
  if (known.said) return h("p", { class: "soft", role: "status" }, known.said);
  const more = known.headers_count - known.headers.length;
  return h(
    "ul",
    { class: "soft", "aria-label": `details of ${nameOf(row)}` },
    known.timestamp_ms !== null && h("li", null, `made ${new Date(known.timestamp_ms).toISOString()}`),
    known.headers.map((it) => h("li", null, h("code", null, it.name), ": ", headerValue(it))),
    known.headers_count === 0 && h("li", null, "It has no headers."),
    more > 0 && h("li", null, `and ${whole(more)} more`),
  );
}

async function readDetails(group, row) {
  const { topic, partition, offset } = row;
  const after = offset > 0 ? `${topic}-${partition}-${offset - 1}` : undefined;
  const { parked } = await ask("GET", at("/v1/parked", { group, topic, partition, after, limit: 1, headers: true }));
  const found = parked.find((it) => nameOf(it) === nameOf(row));
  return found?.headers ? found : { said: "The record is gone from the log." };
}

/** A button; and after a press the value. The look is audited, so nothing asks twice. */
function valueOf(app, group, row, choice) {
  const known = choice.values.get(nameOf(row));
  const { topic, partition, offset } = row;
  if (!known) {
    const read = () => ask("GET", at("/v1/parked/value", { group, topic, partition, offset }));
    return asking(`show the value of ${nameOf(row)}`, "value", () => look(app, choice.values, row, read));
  }
  if (known.said) return h("p", { class: "soft", role: "status" }, known.said);
  const facts = [known.format === "null" ? "no value" : `${known.format}, ${bytes(known.value_bytes)}`];
  if (known.schema_id) facts.push(`schema ${known.schema_id}`);
  if (known.cut) facts.push("the beginning of it");
  if (known.masked?.length > 0) facts.push(known.masked[0] === "*" ? "masked" : `masked: ${known.masked.join(", ")}`);
  if (known.problem) facts.push(known.problem);
  return h("div", { class: "value", "aria-label": `value of ${nameOf(row)}` }, h("p", { class: "soft" }, facts.join(" · ")), shownValue(known));
}

function shownValue({ value, value_base64 }) {
  if (value_base64) return h("pre", null, value_base64);
  if (value === undefined || value === null) return false;
  return h("pre", null, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

function asking(label, text, act) {
  return [" ", h("button", { class: "link", "aria-label": label, onclick: act }, text)];
}

async function look(app, known, row, read) {
  const tell = (found) => {
    known.set(nameOf(row), found);
    app.draw();
  };
  tell({ said: "Reading …" });
  try {
    tell(await read());
  } catch (problem) {
    known.delete(nameOf(row)); // to be asked for again
    toast(`${problem.message}.`);
    app.draw();
  }
}

function headerValue({ value, value_base64, value_bytes }) {
  if (value_bytes === null) return "null";
  const shown = value ?? `base64 ${value_base64}`;
  const there = value_base64 ? atob(value_base64).length : new TextEncoder().encode(value).length;
  return there < value_bytes ? `${shown} … (${count(value_bytes, "byte")})` : shown;
}

function everyBox(app, rows, choice) {
  const all = rows.every((it) => choice.chosen.has(nameOf(it)));
  return h("input", {
    type: "checkbox",
    "aria-label": "choose all that are shown",
    checked: all,
    onchange: () => {
      for (const row of rows) all ? choice.chosen.delete(nameOf(row)) : choice.chosen.add(nameOf(row));
      app.draw();
    },
  });
}

function decide(app, group, action, chosen, choice) {
  const { verb, danger, said, done } = ACTIONS[action];
  const places = byPlace(chosen);
  askFirst({
    title: `${verb} ${count(chosen.length, "record")} of ${group}?`,
    verb,
    danger,
    effect: [
      h("p", null, said(chosen.length)),
      h("ul", null, places.map(({ topic, partition, offsets }) => h("li", null, `${topic}-${partition}: ${offsets.length === 1 ? "offset" : "offsets"} ${some(offsets.map(whole), 12)}`))),
    ],
    act: async () => {
      let number = 0;
      for (const place of places) {
        number += (await ask("POST", "/v1/parked/release", { group, ...place, action })).records;
      }
      choice.chosen.clear();
      return done(number);
    },
    done: app.refresh,
  });
}

function decideAll(app, group, action, parked, choice) {
  const { verb, danger, said, done } = ACTIONS[action];
  askFirst({
    title: `${verb} all parked records of ${group}${saidOf(choice)}?`,
    verb: `${verb} all`,
    danger,
    effect: [h("p", null, said(parked)), h("p", { class: "soft" }, "Records that are parked meanwhile are among them.")],
    act: async () => {
      const { records, partitions } = await ask("POST", "/v1/parked/release", { group, offsets: "all", ...narrowed(choice), action });
      choice.chosen.clear();
      const failed = partitions.filter((it) => it.failed);
      const left = failed.length > 0 ? ` ${failed[0].topic}-${failed[0].partition} was left as it is: ${failed[0].failed}.` : "";
      return done(records) + left;
    },
    done: app.refresh,
  });
}

function saidOf({ reason, key }) {
  const said = [reason && `the reason ${reason.replaceAll("_", " ")}`, key && `a key like ${key}`].filter(Boolean);
  return said.length > 0 ? ` with ${said.join(" and ")}` : "";
}

function byPlace(chosen) {
  const places = new Map();
  for (const { topic, partition, offset } of chosen) {
    const name = `${topic}-${partition}`;
    if (!places.has(name)) places.set(name, { topic, partition, offsets: [] });
    places.get(name).offsets.push(offset);
  }
  return [...places.values()];
}
