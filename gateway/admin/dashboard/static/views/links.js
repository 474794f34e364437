// The distribution between clusters: the tree with the lag of every link, groups and their places on
// other clusters, schemas.

import { tile } from "../charts.js";
import { asOf, SLOW } from "../distribution.js";
import { h } from "../dom.js";
import { count, short, whole } from "../format.js";
import { sum } from "../history.js";
import { lagText, linksPicture } from "../links_picture.js";
import { answered, chooser, table } from "../table.js";
import { drawMoves } from "./moves.js";
import { secondsOf } from "./overview.js";
import { drawSchemas } from "./schemas.js";

const SHOWN = 200;
const TONES = { running: "good", starting: "good", waiting: "warn", silent: "bad", unknown: "bad" };

export function drawLinks(app) {
  const answer = app.answers.use("/v1/clusters");
  return [
    h("h1", null, "Links"),
    answer.problem?.status === 404 ? notConfigured() : answered(answer, (file) => content(app, file)),
  ];
}

function notConfigured() {
  return h(
    "section",
    { class: "panel", "aria-label": "Links" },
    h("p", { class: "empty" }, "This node knows no other clusters. Set ", h("code", null, "admin.clusters_file"), " in keyway.yaml to the file that describes them, and start the node again."),
  );
}

function content(app, file) {
  return [links(app, file), drawMoves(app), drawSchemas(app, file)];
}

function links(app, file) {
  const answer = app.answers.use("/v1/links", SLOW);
  const choice = app.choice("links", () => ({ chosen: null, sort: { by: "Lag", down: true } }));
  const rows = file.links.map((link) => figures(link, answer.data?.status ?? []));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "tree" },
    h("h2", { id: "tree" }, "Tree of the clusters"),
    h("p", { class: "soft" }, "An arrow is a link: it copies the records of one cluster to another, and its lag stands on it. The circles are the nodes of the tree, with their levels."),
    linksPicture(file.tree, rows),
    answered(answer, (shown) => [asOf(app, shown), linkTable(app, choice, rows), details(choice, rows)]),
  );
}

/** A link of the file with all that it has said about itself, its partitions summed. */
function figures(link, status) {
  const found = status.find((it) => it.source === link.source && it.level === link.level);
  const partitions = Object.entries(found?.topics ?? {}).flatMap(([topic, said]) =>
    Object.entries(said.partitions ?? {}).map(([partition, row]) => ({
      ...row,
      topic,
      partition: Number(partition),
      state: said.state,
      reason: said.reason,
    })),
  );
  const stopped = Object.entries(found?.topics ?? {}).filter(([, said]) => said.state === "stopped");
  const of = (name) => sum(partitions.map((it) => it[name] ?? 0));
  const row = {
    name: `${link.source} ${link.level}`,
    source: link.source,
    level: link.level,
    targets: link.targets,
    target: found?.target ?? link.targets[0],
    state: found?.state ?? "not known yet",
    error: found?.error ?? "",
    partitions,
    stopped: stopped.map(([topic, { reason }]) => `${topic}: ${reason}`),
    lag: partitions.length === 0 ? null : of("lag_records"),
    seconds: partitions.length === 0 ? null : Math.max(...partitions.map((it) => it.lag_s ?? 0)),
    copied: of("copied"),
    skipped: of("skipped"),
    repeats: of("repeats"),
    doubts: of("doubts"),
    refused: of("left_out"),
    gap: of("gap"),
  };
  return { ...row, tone: toneOf(row), said: saidOf(row) };
}

function toneOf({ state, stopped }) {
  const tone = TONES[state] ?? "";
  return tone === "good" && stopped.length > 0 ? "warn" : tone;
}

/** The text on an arrow. */
function saidOf(row) {
  const lag = row.lag === null ? null : lagText({ records: row.lag, seconds: row.seconds });
  const stopped = row.stopped.length > 0 ? `${count(row.stopped.length, "topic")} stopped` : null;
  return [row.state === "running" ? null : row.state, stopped, lag].filter(Boolean).join(" · ") || "no topic yet";
}

function linkName({ source, target }) {
  return `${source} → ${target}`;
}

function linkTable(app, choice, rows) {
  const columns = [
    { name: "Link", head: true, of: linkName, cell: (it) => chooser(app, choice, it.name, linkName(it), "link-details") },
    { name: "Level", number: true, wide: true, of: (it) => it.level },
    { name: "State", of: (it) => it.state, cell: stateOf },
    { name: "Lag", number: true, of: (it) => it.lag, cell: (it) => short(it.lag) },
    { name: "Behind", number: true, of: (it) => it.seconds, cell: (it) => secondsOf(it.seconds) },
    { name: "Copied", number: true, wide: true, of: (it) => it.copied, cell: (it) => short(it.copied) },
    { name: "Repeats", number: true, wide: true, of: (it) => it.repeats, cell: (it) => short(it.repeats) },
    { name: "Rejected", number: true, wide: true, of: (it) => it.doubts, cell: (it) => short(it.doubts) },
    { name: "Refused", number: true, wide: true, of: (it) => it.refused, cell: (it) => short(it.refused) },
    { name: "Deleted before", number: true, wide: true, of: (it) => it.gap, cell: (it) => short(it.gap) },
    { name: "Last error", wide: true, cell: (it) => [it.error, ...it.stopped].filter(Boolean).join("; ") || "–" },
  ];
  return table({ app, caption: "Links between the clusters", columns, rows, keyOf: (it) => it.name, sort: choice.sort, empty: "" });
}

function stateOf(row) {
  return h("span", { class: `pill ${row.tone}` }, row.stopped.length > 0 && row.state === "running" ? `${count(row.stopped.length, "topic")} stopped` : row.state);
}

/** The link that was chosen: all its figures, and those of its partitions. */
function details(choice, rows) {
  const row = rows.find((it) => it.name === choice.chosen);
  if (!row) return null;
  const others = row.targets.filter((it) => it !== row.target);
  const troubles = [row.error, ...row.stopped].filter(Boolean);
  return h(
    "div",
    { id: "link-details", class: "details", key: "link-details" },
    h("h3", null, `${linkName(row)}, level ${row.level}`),
    others.length > 0 && h("p", { class: "soft" }, `If ${row.target} is given up, records can go to ${others.join(", ")} instead: keyway distribute switch.`),
    troubles.length > 0 && h("ul", { class: "reasons" }, troubles.map((it) => h("li", null, it))),
    h(
      "div",
      { class: "tiles" },
      tile({ name: "Copied", value: short(row.copied), unit: "records" }),
      tile({ name: "Skipped", value: short(row.skipped), note: "there by another way" }),
      tile({ name: "Repeats", value: short(row.repeats), note: "written twice after a crash" }),
      tile({ name: "Rejected", value: short(row.doubts), note: "copy headers not believed" }),
      tile({ name: "Refused", value: short(row.refused), note: "by the target: left out, or dead letters", tone: row.refused > 0 ? "warn" : "" }),
      tile({ name: "Deleted before", value: short(row.gap), note: "before they were copied", tone: row.gap > 0 ? "warn" : "" }),
    ),
    partitionTable(row.partitions),
    row.partitions.length > SHOWN && h("p", { class: "soft" }, `The first ${SHOWN} of ${count(row.partitions.length, "partition")} are shown.`),
  );
}

function remarkOf({ reason, open_at }) {
  return reason || (open_at >= 0 ? `waits for an open transaction at offset ${whole(open_at)}` : "");
}

function partitionTable(rows) {
  const columns = [
    { name: "Partition", head: true, cell: (it) => `${it.topic}-${it.partition}` },
    { name: "State", cell: (it) => [h("span", { class: `pill ${it.state === "stopped" ? "bad" : ""}` }, it.state), remarkOf(it) && h("span", { class: "soft" }, ` ${remarkOf(it)}`)] },
    { name: "Lag", number: true, cell: (it) => short(it.lag_records) },
    { name: "Behind", number: true, cell: (it) => secondsOf(it.lag_s) },
    { name: "Position", number: true, wide: true, cell: (it) => (it.position < 0 ? "–" : whole(it.position)) },
    { name: "Log end", number: true, wide: true, cell: (it) => (it.log_end < 0 ? "–" : whole(it.log_end)) },
    { name: "Copied", number: true, wide: true, cell: (it) => short(it.copied) },
    { name: "Skipped", number: true, wide: true, cell: (it) => short(it.skipped) },
    { name: "Repeats", number: true, wide: true, cell: (it) => short(it.repeats) },
    { name: "Rejected", number: true, wide: true, cell: (it) => short(it.doubts) },
    { name: "Refused", number: true, wide: true, cell: (it) => short(it.left_out) },
    { name: "Deleted before", number: true, wide: true, cell: (it) => short(it.gap) },
  ];
  return table({ caption: "Partitions of the link", columns, rows: rows.slice(0, SHOWN), keyOf: (it) => `${it.topic} ${it.partition}`, empty: "The link has copied no topic yet." });
}
