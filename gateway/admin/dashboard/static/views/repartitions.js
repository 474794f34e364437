// Topics that get other partitions: the phase, what it waits for, and of each old partition the
// boundary and who has records below it. For admins: begin and abort.

import { askFirst } from "../dialog.js";
import { h, labelled, named } from "../dom.js";
import { count, duration, some, whole } from "../format.js";
import { ask } from "../rest.js";
import { answered, chooser, table } from "../table.js";
import { mayOrder } from "./login.js";

const TONES = { finished: "good", aborted: "" };
const ABORTABLE = new Set(["marked", "created"]);
const NAMED = 3;

export function drawRepartitions(app) {
  const answer = app.answers.use("/v1/repartitions");
  if (!answer.data && answer.problem?.status === 403) return null; // the token is for some groups
  return h(
    "section",
    { class: "panel", "aria-labelledby": "repartitions" },
    h("h2", { id: "repartitions" }, "Other partitions for a topic"),
    h("p", { class: "soft" }, "More of them, or any number in a new topic, with the order of every key kept."),
    answered(answer, (shown) => content(app, shown.repartitions)),
  );
}

function content(app, rows) {
  const choice = app.choice("repartitions", () => ({ chosen: null }));
  const chosen = rows.find((it) => it.topic === choice.chosen);
  const columns = [
    { name: "Topic", head: true, cell: (it) => chooser(app, choice, it.topic, named(it.topic), "repartition-details") },
    { name: "Partitions", cell: counts },
    { name: "Phase", cell: (it) => h("span", { class: `pill ${TONES[it.phase] ?? "warn"}` }, it.phase) },
    { name: "Begun", number: true, wide: true, cell: (it) => (app.overview ? `${duration(Math.max(0, app.overview.at_ms - it.began_ms))} ago` : "–") },
    { name: "Waits for", wide: true, cell: (it) => it.error ?? (it.waits_for.join("; ") || "–") },
    { name: "Late records", number: true, wide: true, cell: late },
    mayOrder(app) && { name: "Order", cell: (it) => (ABORTABLE.has(it.phase) ? abortButton(app, it) : "–") },
  ].filter(Boolean);
  return [
    table({ caption: "Topics that get other partitions", columns, rows, keyOf: (it) => it.topic, empty: "None does, and none did." }),
    chosen && details(chosen),
    mayOrder(app) && startForm(app),
  ];
}

function counts({ before, after, into }) {
  return [`${whole(before)} to ${whole(after)}`, into && [" of ", named(into)]];
}

function late({ late_records: records, late_partitions: partitions }) {
  if (records === 0) return "0";
  return h("span", { class: "warn" }, `${whole(records)} in partition ${some(partitions, NAMED)}`);
}

function details(row) {
  const columns = [
    { name: "Old partition", head: true, cell: (it) => String(it.partition) },
    { name: "Boundary", number: true, cell: (it) => whole(it.boundary) },
    { name: "Log end", number: true, wide: true, cell: (it) => whole(it.log_end) },
    { name: "Left below it", number: true, cell: (it) => leftOf(row, it.partition) },
    { name: "Held up by", cell: (it) => holders(row, it.partition) },
  ];
  return h(
    "div",
    { id: "repartition-details", key: row.topic },
    h("h3", null, `Old partitions of ${row.topic}`),
    row.waits_for.length > 0 && h("p", null, `It waits: ${row.waits_for.join("; ")}.`),
    row.error && h("p", { class: "problem", role: "alert" }, `${row.error}.`),
    row.given_up.length > 0 && h("p", { class: "problem" }, `The order was given up for ${some(row.given_up, NAMED)}: no commit in time.`),
    row.producers.length > 0 && h("p", null, `Producers that were not told yet: ${some(row.producers.map((it) => `${it.client_id ?? "no name"} at ${it.client}`), NAMED)}.`),
    row.closed_connections > 0 && h("p", { class: "soft" }, `${count(row.closed_connections, "connection")} of producers that did not ask were closed.`),
    table({ caption: `Old partitions of ${row.topic}`, columns, rows: row.partitions, keyOf: (it) => it.partition, empty: "" }),
    h("p", { class: "soft" }, `Order kept for ${some([...row.groups, ...row.consumers], 6) || "no group yet"}${row.unordered.length > 0 ? `, given up for ${some(row.unordered, 6)}` : ""}.`),
  );
}

function leftIn(row, partition) {
  return row.left.filter((it) => it.partition === partition);
}

/** The group that has most left. */
function leftOf(row, partition) {
  if (row.phase !== "open" && row.phase !== "draining") return "–";
  return whole(Math.max(0, ...leftIn(row, partition).map((it) => it.records)));
}

function holders(row, partition) {
  const holding = leftIn(row, partition).map((it) => (it.keys ? `${it.group} (${count(it.keys, "key")})` : it.group));
  return holding.length === 0 ? "–" : some(holding, NAMED);
}

function abortButton(app, { topic, before, into }) {
  const abort = () => {
    const force = h("input", { type: "checkbox" });
    askFirst({
      title: `Abort the repartition of ${topic}?`,
      verb: "Abort",
      danger: true,
      effect: into
        ? h("p", null, `Clients go on with ${topic} alone. ${into} stays, empty.`)
        : [
            h("p", null, `Clients go on with ${count(before, "partition")}. Those that Kafka has already stay, hidden.`),
            h("p", null, h("label", null, force, " Also if Kafka gives some of them to members of KIP-848 groups, which then idle")),
          ],
      act: async () => {
        await ask("POST", "/v1/repartitions/abort", { topic, force: force.checked });
        return `The repartition of ${topic} is aborted.`;
      },
      done: app.refresh,
    });
  };
  return h("button", { onclick: abort }, "Abort …", h("span", { class: "hidden" }, ` ${topic}`));
}

function startForm(app) {
  const choice = app.choice("repartition", () => ({ topic: "", partitions: "", into: "", partitioner: "", problem: "" }));
  const set = (name) => (event) => {
    choice[name] = event.target.value;
    choice.problem = "";
    app.draw();
  };
  const field = (name, label, more) => labelled(`repartition-${name}`, label, h("input", { id: `repartition-${name}`, value: choice[name], oninput: set(name), ...more }));
  return h(
    "form",
    { class: "seek", "aria-label": "Other partitions", onsubmit: (event) => preview(app, choice, event) },
    field("topic", "Topic", { required: true, maxlength: 249 }),
    field("partitions", "Partitions", { type: "number", min: 1, required: true }),
    field("into", "Into a new topic", { maxlength: 249, placeholder: "no: the topic grows" }),
    field("partitioner", "Partitioner", { placeholder: "as its records show", pattern: "murmur2|crc32", title: "murmur2 (Java's default) or crc32 (librdkafka's)" }),
    h("button", { class: "primary" }, "Plan …"),
    choice.problem && h("p", { class: "problem", role: "alert" }, choice.problem),
  );
}

async function preview(app, choice, event) {
  event.preventDefault();
  const { topic, partitions, into, partitioner } = choice;
  const body = { topic, partitions: Number(partitions), ...(into && { into }), ...(partitioner && { partitioner }) };
  try {
    const plan = await ask("POST", "/v1/repartitions", body);
    const refused = plan.refusals.length > 0;
    askFirst({
      title: refused ? `${topic} stays as it is` : `${topic}: ${plan.before} to ${plan.after} partitions${into && ` of ${into}`}?`,
      verb: "Start",
      effect: [
        plan.refusals.map((it) => h("p", { class: "problem", role: "alert" }, `${it}.`)),
        h("p", null, `Order of keys kept for: ${some(plan.ordered_groups, 6) || "no group"}.`),
        plan.warnings.map((it) => h("p", { class: "soft" }, `${it}.`)),
      ],
      act: refused ? null : () => start(body),
      done: app.refresh,
    });
  } catch (problem) {
    choice.problem = problem.message;
  }
  app.draw();
}

async function start(body) {
  await ask("POST", "/v1/repartitions", { ...body, execute: true });
  return `The repartition of ${body.topic} has begun.`;
}
