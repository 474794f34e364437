// The positions of a group, and moving them: the moves are shown first, partition by partition.

import { askFirst } from "../dialog.js";
import { h, labelled } from "../dom.js";
import { count, short, whole } from "../format.js";
import { ask, at } from "../rest.js";
import { answered, table } from "../table.js";
import { mayAct } from "./login.js";
import { secondsOf } from "./overview.js";
import { placeOf } from "./partitions.js";

const SHOWN = 200;

/** By the `to` of a seek: its name, and the field that it needs beside it. */
const PLACES = {
  earliest: { name: "the start of the log" },
  latest: { name: "the end of the log" },
  offset: { name: "an offset", field: { name: "offset", label: "Offset", type: "number", min: 0, read: Number } },
  timestamp: {
    name: "a time",
    field: { name: "timestamp_ms", label: "First record from this time on (your clock)", type: "datetime-local", step: 1, read: (text) => new Date(text).getTime() },
  },
  shift: { name: "so many records on", field: { name: "shift", label: "Records, backwards if negative", type: "number", read: Number } },
};

export function drawPositions(app, described) {
  const { group } = described;
  const answer = app.answers.use(at("/v1/positions", { group, limit: SHOWN }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "positions" },
    h("h2", { id: "positions" }, "Positions"),
    h("p", { class: "soft" }, "Where the group reads on in each partition, also in those that nobody reads now."),
    answered(answer, (shown) => [mayAct(app) && seekForm(app, group, shown.positions), positionTable(shown)]),
  );
}

function positionTable({ positions, next }) {
  const columns = [
    { name: "Partition", head: true, cell: placeOf },
    { name: "Cursor", number: true, cell: (it) => whole(it.cursor) },
    { name: "Log end", number: true, wide: true, cell: (it) => whole(it.log_end) },
    { name: "Lag", number: true, cell: (it) => short(it.lag) },
    { name: "Oldest", number: true, wide: true, cell: (it) => secondsOf(it.lag_seconds) },
    { name: "Settled behind", number: true, wide: true, cell: (it) => whole(it.settled) },
    { name: "Window", wide: true, cell: (it) => it.state },
  ];
  return [
    table({ caption: "Positions of the group", columns, rows: positions, keyOf: placeOf, empty: "The group has no position yet." }),
    next && h("p", { class: "soft" }, `The first ${SHOWN} are shown: keyway group positions lists all.`),
  ];
}

function seekForm(app, group, positions) {
  const choice = app.choice(`seek of ${group}`, () => ({ to: "earliest", value: "", topic: "", partition: "", problem: "" }));
  const { field } = PLACES[choice.to];
  const topics = [...new Set(positions.map((it) => it.topic))];
  const set = (name) => (event) => {
    choice[name] = event.target.value;
    choice.problem = "";
    app.draw();
  };
  return h(
    "form",
    { class: "seek", "aria-label": "Move positions", onsubmit: (event) => preview(app, group, choice, event) },
    labelled("seek-to", "Move to", h("select", { id: "seek-to", value: choice.to, onchange: set("to") }, Object.entries(PLACES).map(([to, { name }]) => h("option", { value: to, selected: to === choice.to }, name)))),
    field && labelled("seek-value", field.label, h("input", { id: "seek-value", key: field.name, type: field.type, min: field.min, step: field.step, required: true, value: choice.value, oninput: set("value") })),
    labelled("seek-topic", "Of topic", h("select", { id: "seek-topic", value: choice.topic, onchange: set("topic") }, [["", "all topics"], ...topics.map((it) => [it, it])].map(([value, name]) => h("option", { value, selected: value === choice.topic }, name)))),
    choice.topic && labelled("seek-partition", "Partition", h("input", { id: "seek-partition", type: "number", min: 0, placeholder: "all", value: choice.partition, oninput: set("partition") })),
    h("button", { class: "primary" }, "Preview …"),
    choice.problem && h("p", { class: "problem", role: "alert" }, choice.problem),
  );
}

function bodyOf({ to, value, topic, partition }) {
  const { field } = PLACES[to];
  return {
    to,
    ...(field && { [field.name]: field.read(value) }),
    ...(topic && { topic }),
    ...(topic && partition !== "" && { partitions: [Number(partition)] }),
  };
}

async function preview(app, group, choice, event) {
  event.preventDefault();
  const body = bodyOf(choice);
  const path = at("/v1/positions/seek", { group });
  try {
    const shown = await ask("POST", path, body);
    const moved = shown.positions.filter((it) => it.new !== null);
    const refused = shown.refused ?? (moved.length === 0 ? "No position can be moved." : null);
    askFirst({
      title: refused ? `The positions of ${group} stay` : `Move ${count(moved.length, "position")} of ${group}?`,
      verb: "Move",
      danger: true,
      effect: [
        h("p", null, "Records between the old and the new position come again, or are never delivered."),
        refused && h("p", { class: "problem", role: "alert" }, refused),
        moveTable(shown.positions),
      ],
      act: refused ? null : () => move(path, { ...body, shown: shown.shown }),
      done: app.refresh,
    });
  } catch (problem) {
    choice.problem = problem.message;
  }
  app.draw();
}

async function move(path, body) {
  const { positions } = await ask("POST", path, { ...body, execute: true });
  const failed = positions.filter((it) => it.error);
  const moved = `${count(positions.length - failed.length, "position")} moved`;
  return failed.length === 0 ? `${moved}.` : `${moved}, ${whole(failed.length)} not: ${failed[0].error}.`;
}

function moveTable(rows) {
  const columns = [
    { name: "Partition", head: true, cell: placeOf },
    { name: "Old", number: true, cell: (it) => whole(it.old) },
    { name: "New", number: true, cell: (it) => whole(it.new) },
    { name: "Moves by", number: true, cell: (it) => deltaOf(it) },
    { name: "Error", cell: (it) => it.error ?? "–" },
  ];
  return [
    table({ caption: "Moves of the positions", columns, rows: rows.slice(0, SHOWN), keyOf: placeOf, empty: "" }),
    rows.length > SHOWN && h("p", { class: "soft" }, `The first ${SHOWN} of ${whole(rows.length)} are shown.`),
  ];
}

function deltaOf({ delta }) {
  return delta > 0 ? `+${whole(delta)}` : whole(delta);
}
