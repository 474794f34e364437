// One group: its figures, and a tab for each thing an operator asks about it.

import { tile } from "../charts.js";
import { h, named } from "../dom.js";
import { count, short, some, whole } from "../format.js";
import { sum } from "../history.js";
import { groupPath } from "../rest.js";
import { GROUP_TABS, groupAddress } from "../routes.js";
import { stockCommands } from "../stock_tool.js";
import { answered } from "../table.js";
import { drawFilters } from "./filters.js";
import { stateOf } from "./groups.js";
import { drawHistory } from "./history.js";
import { drawKeys } from "./keys.js";
import { drawMembers } from "./members.js";
import { secondsOf } from "./overview.js";
import { drawParked } from "./parked.js";
import { drawPartitions } from "./partitions.js";
import { drawPositions } from "./positions.js";
import { drawSettings } from "./settings.js";
import { drawUnreadable } from "./unreadable.js";

const DRAWN = {
  "": drawPartitions,
  members: drawMembers,
  keys: drawKeys,
  parked: drawParked,
  unreadable: drawUnreadable,
  positions: drawPositions,
  filters: drawFilters,
  settings: drawSettings,
};

/** Kafka's own commands about a group, by tab. */
const COMMANDS = {
  "": (group) => [
    { what: "Positions and lag", words: ["kafka-share-groups.sh", "--describe", "--group", group] },
    { what: "Who may do what with the group", words: ["kafka-acls.sh", "--list", "--group", group] },
  ],
  members: (group) => [{ what: "Members", words: ["kafka-share-groups.sh", "--describe", "--members", "--verbose", "--group", group] }],
  positions: (group) => [
    { what: "Positions", words: ["kafka-share-groups.sh", "--describe", "--offsets", "--group", group] },
    { what: "A move to the start, shown only: --execute moves", words: ["kafka-share-groups.sh", "--reset-offsets", "--all-topics", "--to-earliest", "--dry-run", "--group", group] },
  ],
  settings: (group) => [
    { what: "Settings in Kafka", words: ["kafka-configs.sh", "--describe", "--entity-type", "groups", "--entity-name", group] },
    { what: "A longer lock", words: ["kafka-configs.sh", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", "share.record.lock.duration.ms=60000"] },
    { what: "Delete the group", words: ["kafka-share-groups.sh", "--delete", "--group", group] },
  ],
};

export function drawGroup(app, { group, tab }) {
  const answer = app.answers.use(groupPath(group));
  const line = app.overview?.groups.find((it) => it.group === group);
  const draw = DRAWN[tab] ?? drawPartitions;
  return [
    h("p", { class: "back" }, h("a", { href: "#/groups" }, "Groups")),
    h("div", { class: "head" }, h("h1", { class: "name" }, named(group)), line && h("p", null, stateOf(line))),
    answered(answer, (described) => [
      policies(described),
      tiles(app, line, described),
      tabs(group, tab, described),
      tab === "" && drawHistory(app, described, line),
      draw(app, described),
      COMMANDS[tab] && stockCommands(app, `${tab} of ${group}`, COMMANDS[tab](group)),
    ]),
  ];
}

function policies({ policies: found, topics, epoch }) {
  const poison = found
    ? `rejected records: ${said(found.rejected)}; exhausted ones: ${said(found.exhausted)}`
    : "unreliable: nothing is delivered twice";
  return h("p", { class: "soft" }, `${some(topics, 6) || "no topic now"} · ${poison} · epoch ${epoch}`);
}

function said(policy) {
  return { drop: "dropped", block: "parked", dead_letter: "to the dead letters" }[policy] ?? policy;
}

function tiles(app, line, described) {
  const of = (name) => sum(described.partitions.map((it) => it[name] ?? 0));
  const outcomes = line?.outcomes ?? {};
  const dead = (outcomes.rejected ?? 0) + (outcomes.exhausted ?? 0);
  return h(
    "section",
    { class: "tiles", "aria-label": "Figures of the group" },
    tile({ name: "Lag", value: short(described.lag), unit: "records", series: line?.lately, tone: line?.growing ? "warn" : "" }),
    line && tile({ name: "Settled", value: short(line.flow.settled), unit: "/s", note: `${short(line.flow.produced)}/s came` }),
    line && tile({ name: "Oldest unsettled", value: secondsOf(line.lag_seconds), note: "age of the record" }),
    tile({ name: "Members", value: whole(described.members) }),
    tile({ name: "In flight", value: short(of("in_flight")), note: of("backing_off") > 0 ? `${short(of("backing_off"))} backing off` : null }),
    tile({ name: "Redelivered", value: short(outcomes.redelivered ?? 0), note: "since the node started" }),
    tile({ name: "Poison", value: short(dead), note: "rejected or exhausted" }),
    tile({ name: "Parked", value: short(described.parked), unit: "records", tone: described.parked > 0 ? "warn" : "" }),
  );
}

function tabs(group, tab, { partitions, parked }) {
  const counts = {
    parked: [parked, "record"],
    unreadable: [partitions.filter((it) => it.read_trouble).length, "partition"],
  };
  return h(
    "nav",
    { class: "tabs", "aria-label": "About the group" },
    h(
      "ul",
      null,
      GROUP_TABS.map((it) =>
        h(
          "li",
          { key: it.title },
          h(
            "a",
            { href: groupAddress(group, it.tab), "aria-current": it.tab === tab ? "page" : null },
            it.title,
            badge(...(counts[it.tab] ?? [0])),
          ),
        ),
      ),
    ),
  );
}

function badge(number, noun) {
  return number > 0 && h("span", { class: "badge" }, whole(number), h("span", { class: "hidden" }, ` ${count(number, noun)}`));
}
