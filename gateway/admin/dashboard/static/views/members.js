// The members of a group: a ring coloured by their shares of the keys, and a row for each.

import { colourOf, ring, swatch } from "../charts.js";
import { h, named } from "../dom.js";
import { count, duration, percent, short, some, whole } from "../format.js";
import { at } from "../rest.js";
import { answered, table } from "../table.js";

const SHOWN = 200;

export function drawMembers(app, { group, members }) {
  const answer = app.answers.use(at("/v1/members", { group, limit: SHOWN }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "members" },
    h("h2", { id: "members" }, "Members"),
    answered(answer, (shown) => content(app, group, shown.members)),
    members > SHOWN && h("p", { class: "soft" }, `The first ${SHOWN} of ${whole(members)} are shown.`),
  );
}

function content(app, group, members) {
  if (members.length === 0) {
    return h("p", { class: "empty" }, "The group has no member now. Its positions stay, and its lag grows.");
  }
  const rows = members.map((member, index) => ({ ...member, colour: colourOf(index) }));
  return h("div", { class: "ring-and-table" }, keyRing(rows), memberTable(app, group, rows));
}

function keyRing(rows) {
  const parts = rows.filter((it) => it.share).map((it) => ({
    share: it.share,
    colour: it.colour,
    title: `${it.client_id}: ${percent(it.share)} of the keys`,
  }));
  const said = `Shares of the keys: ${some(parts.map((it) => it.title), 8)}`;
  return ring(parts, said, [whole(rows.length), rows.length === 1 ? "member" : "members"]);
}

function memberTable(app, group, rows) {
  const choice = app.choice(`members of ${group}`, () => ({ sort: { by: "Client", down: false } }));
  const columns = [
    { name: "Client", head: true, of: (it) => it.client_id, cell: (it) => [swatch(it.colour), named(it.client_id)] },
    { name: "Host", widest: true, of: (it) => it.host },
    { name: "Keys", number: true, of: (it) => it.share ?? null, cell: (it) => percent(it.share) },
    { name: "Ready keys", number: true, wide: true, of: (it) => it.ready_keys, cell: (it) => short(it.ready_keys) },
    { name: "In flight", number: true, of: (it) => it.in_flight, cell: (it) => short(it.in_flight) },
    { name: "Draining", number: true, wide: true, of: (it) => it.draining_keys, cell: (it) => short(it.draining_keys) },
    { name: "Heard of", number: true, wide: true, of: (it) => it.last_heartbeat_ms, cell: (it) => heard(app, it) },
    { name: "Silent in", number: true, of: (it) => it.silent_partitions, cell: (it) => it.silent_partitions > 0 ? h("strong", { title: "It fetches nothing there. Other members have its keys." }, count(it.silent_partitions, "partition")) : "–" },
    { name: "Member id", widest: true, of: (it) => it.member_id, cell: (it) => h("code", null, it.member_id) },
  ];
  return table({ app, caption: "Members of the group", columns, rows, keyOf: (it) => it.member_id, sort: choice.sort, empty: "" });
}

/** The age of the last heartbeat, by the node's clock. */
function heard(app, { last_heartbeat_ms: at_ms }) {
  return app.overview ? `${duration(Math.max(0, app.overview.at_ms - at_ms))} ago` : "–";
}
