// Groups and the places at which they would resume on other clusters.

import { ago, asOf, SLOW } from "../distribution.js";
import { h } from "../dom.js";
import { count, duration, short, whole } from "../format.js";
import { sum } from "../history.js";
import { answered, chooser, search, table } from "../table.js";

const SHOWN = 200;

export function drawMoves(app) {
  const answer = app.answers.use("/v1/offsets", { ...SLOW, everyMs: 8_000 });
  return h(
    "section",
    { class: "panel", "aria-labelledby": "moves" },
    h("h2", { id: "moves" }, "Groups on other clusters"),
    h("p", { class: "soft" }, "Where each group would go on if it moved now, and the records it would get again at most. ", h("code", null, "keyway offsets plan"), " looks anew; ", h("code", null, "keyway offsets apply"), " commits."),
    answered(answer, (shown) => content(app, shown)),
  );
}

function content(app, shown) {
  const choice = app.choice("moves", () => ({ chosen: null, words: "", sort: { by: "Group", down: false } }));
  const words = choice.words.toLowerCase().trim();
  const rows = moves(shown.status.rows).filter((it) => it.group.toLowerCase().includes(words));
  const listed = rows.slice(0, SHOWN);
  return [
    asOf(app, shown),
    (words || rows.length > 8) && search({ app, choice, id: "move-words", label: "Groups with these letters", placeholder: "group" }),
    moveTable(app, choice, listed, words),
    rows.length > SHOWN && h("p", { class: "soft" }, `The first ${SHOWN} of ${whole(rows.length)} are shown.`),
    details(app, rows.find((it) => it.name === choice.chosen)),
  ];
}

/** A move of a group from one cluster to another, its partitions together. */
function moves(rows) {
  const found = new Map();
  for (const row of rows) {
    const name = JSON.stringify([row.group, row.source, row.cluster]);
    if (!found.has(name)) found.set(name, { name, group: row.group, source: row.source, cluster: row.cluster, partitions: [] });
    found.get(name).partitions.push(row);
  }
  return [...found.values()].map((move) => {
    const known = move.partitions.filter((it) => it.new !== null);
    const again = known.filter((it) => it.replay > 0);
    const unknown = known.length === 0 || again.some((it) => it.replay_ms === null);
    return {
      ...move,
      again: known.length === 0 ? null : sum(again.map((it) => it.replay)),
      backMs: unknown ? null : Math.max(0, ...again.map((it) => it.replay_ms)),
      refused: move.partitions.filter((it) => it.refusals.length > 0).length,
      reasons: [...new Set(move.partitions.flatMap((it) => it.refusals))],
    };
  });
}

function moveTable(app, choice, rows, words) {
  const columns = [
    { name: "Group", head: true, of: (it) => it.group, cell: (it) => chooser(app, choice, it.name, it.group, "move-details") },
    { name: "Is at", of: (it) => it.source },
    { name: "Would go on at", of: (it) => it.cluster },
    { name: "Partitions", number: true, wide: true, of: (it) => it.partitions.length, cell: (it) => whole(it.partitions.length) },
    { name: "Again", number: true, of: (it) => it.again, cell: (it) => short(it.again) },
    { name: "Back by", number: true, wide: true, of: (it) => it.backMs, cell: (it) => back(it.backMs) },
    { name: "Why not", of: (it) => it.reasons.join(), cell: whyNot },
  ];
  return table({
    app,
    caption: "Groups and the clusters they could move to",
    columns,
    rows,
    keyOf: (it) => it.name,
    sort: choice.sort,
    empty: words ? "No group has these letters." : "No group is known on another cluster: keyway offsets run follows them.",
  });
}

function back(ms) {
  return ms === null ? "–" : ms === 0 ? "0 s" : duration(ms);
}

function whyNot({ reasons, refused, partitions }) {
  if (reasons.length === 0) return h("span", { class: "pill good" }, "ready");
  const some = refused < partitions.length && ` in ${whole(refused)} of ${count(partitions.length, "partition")}`;
  return [reasons.map((it) => [h("span", { class: "pill warn" }, it), " "]), some && h("span", { class: "soft" }, some)];
}

function details(app, move) {
  if (!move) return null;
  const columns = [
    { name: "Partition", head: true, cell: (it) => `${it.topic}-${it.partition}` },
    { name: `Offset at ${move.source}`, number: true, wide: true, cell: (it) => whole(it.source_offset) },
    { name: "Committed", number: true, wide: true, cell: (it) => ago(app, it.source_ms) },
    { name: "By", wide: true, cell: (it) => it.mode },
    { name: "Now there", number: true, cell: (it) => whole(it.old) },
    { name: "New", number: true, cell: (it) => whole(it.new) },
    { name: "Again", number: true, cell: (it) => (it.new === null ? "–" : whole(it.replay)) },
    { name: "Why not", cell: (it) => [it.refusals.join(", ") || "–", it.error && h("span", { class: "soft" }, ` ${it.error}`)] },
  ];
  return h(
    "div",
    { id: "move-details", class: "details", key: "move-details" },
    h("h3", null, `${move.group}, from ${move.source} to ${move.cluster}`),
    table({ caption: "Partitions of the group", columns, rows: move.partitions.slice(0, SHOWN), keyOf: (it) => `${it.topic} ${it.partition}`, empty: "" }),
    move.partitions.length > SHOWN && h("p", { class: "soft" }, `The first ${SHOWN} of ${count(move.partitions.length, "partition")} are shown.`),
  );
}
