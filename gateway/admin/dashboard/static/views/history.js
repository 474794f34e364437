// The last 15 minutes of a group, as the node has kept them: rates, lag, and the same by topic.

import { chart } from "../charts.js";
import { h, named } from "../dom.js";
import { duration, short, whole } from "../format.js";
import { at } from "../rest.js";
import { answered, table } from "../table.js";

const EVERY_MS = 5_000; // a point comes every ten seconds
const RATES = [
  { name: "produced", tone: "t-produced" },
  { name: "delivered", tone: "t-delivered" },
  { name: "settled", tone: "t-settled" },
];

export function drawHistory(app, { group }, line) {
  const answer = app.answers.use(at("/v1/history", { group }), { everyMs: EVERY_MS });
  return h(
    "section",
    { class: "panel", "aria-labelledby": "history" },
    h("div", { class: "head" }, h("h2", { id: "history" }, "The last 15 minutes"), line && h("p", null, trend(line))),
    answered(answer, ({ whole: all, topics, topics_hidden: hidden }) => [
      all.at_ms.length < 3
        ? h("p", { class: "empty" }, "The node keeps a point every ten seconds; the first ones are on their way.")
        : h("div", { class: "charts" }, rates(all), lag(all)),
      topics.length > 1 && byTopic(topics),
      hidden > 0 && h("p", { class: "soft" }, `${whole(hidden)} more topics are not shown.`),
    ]),
  );
}

/** What the lag does now, in words. */
function trend({ growing, stopped, catches_up_s: seconds, lag: records, flow, parked }) {
  if (stopped) return h("span", { class: "pill warn" }, "no member, and its lag grows");
  if (growing) return h("span", { class: "pill warn" }, `falls behind by ${short(Math.max(1, Math.round(flow.produced - flow.settled)))} records/s`);
  if (records > 0 && seconds !== null) return h("span", { class: "pill good" }, `catches up in ${duration(Math.max(1_000, seconds * 1_000))}`);
  if (records === 0) return h("span", { class: "pill good" }, "has caught up");
  return parked > 0 ? h("span", { class: "soft" }, "parked records are part of the lag") : null;
}

function rates(history) {
  const lines = RATES.map(({ name, tone }) => ({ name, tone, values: history[name] }));
  return chart({ title: "Records per second", said: `records per second: ${lines.map(saidOf).join("; ")}`, atMs: history.at_ms, lines });
}

function lag(history) {
  const line = { name: "lag", tone: "t-lag", values: history.lag };
  return chart({ title: "Lag, records", said: saidOf(line), atMs: history.at_ms, lines: [line] });
}

function saidOf({ name, values }) {
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  return `${name} ${short(values.findLast((value) => value !== null))} now, ${short(most)} at most`;
}

function byTopic(topics) {
  const now = (name) => (it) => short(it[name].findLast((value) => value !== null));
  const columns = [
    { name: "Topic", head: true, cell: (it) => named(it.topic) },
    { name: "Lag", number: true, cell: now("lag") },
    ...RATES.map(({ name }) => ({ name: `${name}/s`, number: true, cell: now(name) })),
  ];
  return table({ caption: "Rates by topic", columns, rows: topics, keyOf: (it) => it.topic, empty: "" });
}
