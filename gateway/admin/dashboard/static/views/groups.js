// All groups of the node, filtered and sorted.

import { h, named } from "../dom.js";
import { count, short, some, whole } from "../format.js";
import { search, table } from "../table.js";
import { catchesUp, groupName, lagLine, loading, parkedCell, secondsOf, statePill } from "./overview.js";

export function drawGroups(app) {
  const { overview } = app;
  if (!overview) return loading("Groups");
  const choice = app.choice("groups", () => ({ words: "", sort: { by: "Lag", down: true } }));
  const words = choice.words.toLowerCase().trim();
  const rows = overview.groups.filter((it) => matches(it, words));
  return [
    h(
      "div",
      { class: "head" },
      h("h1", null, "Groups"),
      search({ app, choice, id: "words", label: "Groups or topics with these letters", placeholder: "group or topic" }),
    ),
    h(
      "section",
      { class: "panel", "aria-label": "Groups" },
      table({
        app,
        caption: "Groups of this node",
        columns: COLUMNS,
        rows,
        keyOf: (it) => it.group,
        sort: choice.sort,
        empty: words ? "No group or topic has these letters." : "No group has been here yet. A share consumer that joins makes one.",
      }),
      overview.groups_hidden > 0 && h("p", { class: "soft" }, `${count(overview.groups_hidden, "group")} more are not shown here: keyway group list shows all.`),
    ),
  ];
}

export function perSecond(rate) {
  return rate === null ? "–" : `${short(Math.round(rate * 10) / 10)}/s`;
}

function matches(group, words) {
  return group.group.toLowerCase().includes(words) || group.topics.some((it) => it.toLowerCase().includes(words));
}

const COLUMNS = [
  { name: "Group", head: true, of: (it) => it.group, cell: groupName },
  { name: "State", wide: true, of: (it) => it.state, cell: stateOf },
  { name: "Members", number: true, wider: true, of: (it) => it.members, cell: (it) => whole(it.members) },
  { name: "Topics", widest: true, cell: (it) => named(some(it.topics, 2) || "–") },
  { name: "Lately", wide: true, line: true, cell: lagLine },
  { name: "Lag", number: true, of: (it) => it.lag, cell: (it) => short(it.lag) },
  { name: "Oldest", number: true, wider: true, of: (it) => it.lag_seconds, cell: (it) => secondsOf(it.lag_seconds) },
  { name: "Settled", number: true, wider: true, of: (it) => it.flow.settled, cell: (it) => perSecond(it.flow.settled) },
  { name: "Catches up", number: true, wide: true, of: (it) => (it.growing ? Infinity : it.catches_up_s), cell: catchesUp },
  { name: "In flight", number: true, widest: true, of: (it) => it.in_flight, cell: (it) => short(it.in_flight) },
  { name: "Redelivered", number: true, widest: true, of: (it) => it.outcomes.redelivered ?? 0, cell: (it) => short(it.outcomes.redelivered ?? 0) },
  { name: "Parked", number: true, of: (it) => it.parked, cell: parkedCell },
];

export function stateOf(group) {
  const troubles = [
    group.waiting > 0 && `${count(group.waiting, "window")} waiting`,
    group.stuck > 0 && `${group.stuck} stuck`,
    group.held > 0 && `${group.held} waiting for a transaction`,
    group.stopped && "no member, its lag grows",
    group.draining_keys > 0 && `${count(group.draining_keys, "key")} draining`,
  ].filter(Boolean);
  return [statePill(group), troubles.length > 0 && h("span", { class: "soft" }, ` ${troubles.join(", ")}`)];
}
