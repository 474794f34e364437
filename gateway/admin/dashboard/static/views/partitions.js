// The partitions of a group: a picture of each window, and its figures.

import { h } from "../dom.js";
import { short, whole } from "../format.js";
import { table } from "../table.js";

export function drawPartitions(app, described) {
  const choice = app.choice(`partitions of ${described.group}`, () => ({ sort: { by: "Partition", down: false } }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Partitions"),
    table({
      app,
      caption: "Partitions of the group",
      columns: COLUMNS,
      rows: described.partitions,
      keyOf: placeOf,
      sort: choice.sort,
      empty: "The group has read no partition yet.",
    }),
    troubles(described.partitions),
  );
}

export function placeOf(row) {
  return `${row.topic}-${row.partition}`;
}

const COLUMNS = [
  { name: "Partition", head: true, of: (it) => `${it.topic} ${String(it.partition).padStart(6, "0")}`, cell: placeOf },
  { name: "State", wide: true, of: (it) => it.state, cell: stateOf },
  { name: "Cursor", number: true, wide: true, of: (it) => it.cursor ?? null, cell: (it) => whole(it.cursor) },
  { name: "End", number: true, wide: true, of: (it) => it.log_end ?? null, cell: (it) => whole(it.log_end) },
  { name: "Lag", number: true, of: (it) => it.lag ?? null, cell: (it) => short(it.lag) },
  { name: "Keys", number: true, wide: true, of: (it) => it.keys ?? null, cell: (it) => short(it.keys) },
  { name: "In flight", number: true, of: (it) => it.in_flight ?? null, cell: (it) => short(it.in_flight) },
  { name: "Backing off", number: true, wide: true, of: (it) => it.backing_off ?? null, cell: (it) => short(it.backing_off) },
  { name: "Parked", number: true, of: (it) => (it.parked ?? []).length, cell: (it) => whole((it.parked ?? []).length) },
];

function stateOf(row) {
  const tone = row.trouble || row.read_trouble ? "bad" : { up: "good", loading: "warn", idle: "" }[row.state];
  return h("span", { class: `pill ${tone}` }, row.state);
}

function troubles(partitions) {
  const said = partitions.flatMap((row) => [
    row.trouble && `${placeOf(row)} waits: ${row.trouble}`,
    row.read_trouble && `${placeOf(row)} cannot be read: ${row.read_trouble}`,
    row.dead_letter_trouble && `${placeOf(row)}: dead letters cannot be written: ${row.dead_letter_trouble}`,
    row.full_span && `${placeOf(row)}: no more is read until offset ${row.full_span.offset} is settled (${row.full_span.limit})`,
  ]).filter(Boolean);
  return said.length > 0 && h("ul", { class: "reasons" }, said.map((it) => h("li", null, it)));
}
