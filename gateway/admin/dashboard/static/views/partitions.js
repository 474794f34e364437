// The partitions of a group: a picture of each window, and its figures.

import { h, named } from "../dom.js";
import { count, duration, short, whole } from "../format.js";
import { at } from "../rest.js";
import { groupAddress } from "../routes.js";
import { table } from "../table.js";
import { legend, partsOf, pointing, spanText, windowPicture } from "../window_picture.js";

const SHOWN = 64; // pictures; the rest of the partitions have their figures
const RUNS = 200; // parts of a picture: more would be narrower than a pixel

export function drawPartitions(app, described) {
  const { group, partitions } = described;
  const choice = app.choice(`partitions of ${group}`, () => ({
    sort: { by: "Partition", down: false },
    pointed: { key: null, at: null },
  }));
  const answer = app.answers.use(at("/v1/windows", { group, limit: SHOWN, runs: RUNS }));
  const windows = new Map((answer.data?.windows ?? []).map((it) => [placeOf(it), partsOf(it)]));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Partitions"),
    windows.size > 0 && legend(),
    pointedText(choice.pointed, windows),
    table({
      app,
      caption: "Partitions of the group",
      columns: columns(app, windows, choice.pointed),
      rows: partitions,
      keyOf: placeOf,
      sort: choice.sort,
      empty: "The group has read no partition yet.",
    }),
    partitions.length > SHOWN && h("p", { class: "soft" }, `Pictures of the first ${SHOWN} of ${count(partitions.length, "partition")}.`),
    troubles(described.group, partitions),
  );
}

export function placeOf(row) {
  return `${row.topic}-${row.partition}`;
}

/** The part of a picture under the pointer or the focus. */
function pointedText({ key, at: index }, windows) {
  const span = key === null || index === null ? null : windows.get(key)?.[index];
  const said = span ? `${key}, ${spanText(span)}` : "Point at a picture, or go there with Tab and the arrow keys.";
  return windows.size > 0 && h("p", { class: "pointed-text", role: "status" }, said);
}

function columns(app, windows, pointed) {
  const picture = (row) => {
    const name = placeOf(row);
    const parts = windows.get(name);
    if (!parts) return h("span", { class: "soft" }, row.state === "up" ? "" : row.state);
    const at = pointed.key === name ? pointed : null;
    return windowPicture(name, parts, at, pointing(app, pointed, name, parts));
  };
  return [
    { name: "Partition", head: true, of: (it) => `${it.topic} ${String(it.partition).padStart(6, "0")}`, cell: nameOf },
    { name: "Window", picture: true, cell: picture },
    { name: "Cursor", number: true, wide: true, of: (it) => it.cursor ?? null, cell: (it) => whole(it.cursor) },
    { name: "Lag", number: true, of: (it) => it.lag ?? null, cell: (it) => short(it.lag) },
    { name: "Keys", number: true, wide: true, of: (it) => it.keys ?? null, cell: (it) => short(it.keys) },
    { name: "In flight", number: true, wide: true, of: (it) => it.in_flight ?? null, cell: (it) => short(it.in_flight) },
    { name: "Backing off", number: true, wide: true, of: (it) => it.backing_off ?? null, cell: (it) => short(it.backing_off) },
    { name: "Parked", number: true, of: (it) => it.parked_records ?? null, cell: (it) => whole(it.parked_records) },
  ];
}

/** A window that is not as it should be has its state beside its name. */
function nameOf(row) {
  const tone = row.trouble || row.read_trouble || row.open_transaction ? "bad" : { loading: "warn", idle: "" }[row.state];
  return [named(placeOf(row)), tone !== undefined && h("span", { class: `pill ${tone}` }, row.state === "up" ? "stuck" : row.state)];
}

function troubles(group, partitions) {
  const said = partitions.flatMap((row) => [
    row.trouble && `${placeOf(row)} waits: ${row.trouble}`,
    row.read_trouble && `${placeOf(row)} cannot be read: ${row.read_trouble}`,
    row.open_transaction && `${placeOf(row)} waits for an open transaction at offset ${whole(row.open_transaction.offset)}, for ${duration(row.open_transaction.seconds * 1000)} or longer`,
    row.dead_letter_trouble && `${placeOf(row)}: dead letters cannot be written: ${row.dead_letter_trouble}`,
    row.full_span && [
      `${placeOf(row)}: all keys wait for offset ${whole(row.full_span.offset)} (${row.full_span.limit} is reached). `,
      h("a", { href: groupAddress(group, "parked") }, "Release or skip the parked records"),
    ],
  ]).filter(Boolean);
  return said.length > 0 && h("ul", { class: "reasons" }, said.map((it) => h("li", null, it)));
}
