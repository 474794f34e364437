// Answers about other clusters: how often they are asked for, and how old they are.

import { h } from "./dom.js";
import { duration } from "./format.js";

/** For `Answers.use`: the node asks all clusters, which takes seconds where one of them is away. */
export const SLOW = { everyMs: 4_000, withinMs: 40_000 };

/** The age of an answer (StatusRow), and the clusters that did not answer. */
export function asOf(app, { at_ms: atMs, problems }) {
  const ageMs = app.overview ? Math.max(0, app.overview.at_ms - atMs) : 0;
  return [
    h("p", { class: "soft" }, ageMs < 1_000 ? "As of now." : `As of ${duration(ageMs)} ago.`),
    problems.length > 0 && h("ul", { class: "reasons" }, problems.map((it) => h("li", null, it))),
  ];
}

/** "12 s ago", by the node's clock. */
export function ago(app, atMs) {
  if (atMs === null || atMs === undefined || !app.overview) return "–";
  return `${duration(Math.max(0, app.overview.at_ms - atMs))} ago`;
}
