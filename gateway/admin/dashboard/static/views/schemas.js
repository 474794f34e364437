// The schemas of each target registry: in sync, behind, and refused with the collision.

import { ago, asOf, SLOW } from "../distribution.js";
import { h } from "../dom.js";
import { whole } from "../format.js";
import { sum } from "../history.js";
import { answered, table } from "../table.js";

const COLLISIONS = new Set(["id_taken", "version_taken"]);

export function drawSchemas(app, { primary }) {
  return h(
    "section",
    { class: "panel", "aria-labelledby": "schemas" },
    h("h2", { id: "schemas" }, "Schemas"),
    primary === null
      ? h("p", { class: "empty" }, "No schemas are distributed: the file names no ", h("code", null, "schemas.primary"), ".")
      : [
          h("p", { class: "soft" }, `Registered at ${primary}, and brought to the others with the same ids.`),
          answered(app.answers.use("/v1/schemas", { ...SLOW, everyMs: 8_000 }), (shown) => content(app, shown)),
        ],
  );
}

function content(app, shown) {
  const { targets } = shown.status;
  const refusals = targets.flatMap((it) => (it.refusals ?? []).map((row) => ({ ...row, target: it.target })));
  const all = sum(targets.flatMap((it) => Object.values(it.refused ?? {})));
  return [
    asOf(app, shown),
    targetTable(app, targets),
    refusals.length > 0 && [h("h3", null, "Refused"), refusalTable(refusals)],
    all > refusals.length && h("p", { class: "soft" }, `${whole(refusals.length)} of ${whole(all)} are shown.`),
  ];
}

function targetTable(app, targets) {
  const columns = [
    { name: "Cluster", head: true, cell: (it) => it.target },
    { name: "State", cell: stateOf },
    { name: "In sync", number: true, cell: (it) => whole(it.in_sync) },
    { name: "Behind", number: true, cell: (it) => whole(it.behind) },
    { name: "Refused", number: true, cell: (it) => (it.refused ? whole(sum(Object.values(it.refused))) : "–") },
    { name: "Collisions", number: true, wide: true, cell: (it) => (it.refused ? whole(collisions(it)) : "–") },
    { name: "Last write", number: true, wide: true, cell: (it) => ago(app, it.last_write_ms) },
    { name: "Reported", number: true, wide: true, cell: (it) => ago(app, it.at_ms) },
    { name: "Problem", wide: true, cell: (it) => it.problem || "–" },
  ];
  return table({ caption: "Registries of the other clusters", columns, rows: targets, keyOf: (it) => it.target, empty: "No other cluster takes schemas." });
}

function collisions({ refused }) {
  return sum(Object.entries(refused).map(([reason, number]) => (COLLISIONS.has(reason) ? number : 0)));
}

function stateOf(target) {
  const [tone, said] = stateWords(target);
  return h("span", { class: `pill ${tone}` }, said);
}

function stateWords(target) {
  if (target.problem) return ["bad", "trouble"];
  if (target.in_sync === undefined) return ["", "never run"];
  const refused = sum(Object.values(target.refused));
  if (refused > 0) return ["bad", collisions(target) > 0 ? "collision" : "refused"];
  return target.behind > 0 ? ["warn", "behind"] : ["good", "in sync"];
}

function refusalTable(rows) {
  const columns = [
    { name: "Subject", head: true, cell: (it) => it.subject },
    { name: "Version", number: true, cell: (it) => whole(it.version) },
    { name: "Id", number: true, cell: (it) => whole(it.id) },
    { name: "On", cell: (it) => it.target },
    { name: "Reason", cell: (it) => h("span", { class: "pill bad" }, it.reason.replaceAll("_", " ")) },
    { name: "Detail", wide: true, cell: (it) => it.detail },
  ];
  return table({ caption: "Refused versions of schemas", columns, rows, keyOf: (it) => `${it.target} ${it.subject} ${it.version} ${it.reason}`, empty: "" });
}
