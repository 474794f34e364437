// The members of a group: a ring coloured by their shares of the keys, and a row for each.

import { colourOf, ring } from "../charts.js";
import { h } from "../dom.js";
import { percent, short, some, whole } from "../format.js";
import { sum } from "../history.js";
import { table } from "../table.js";

export function drawMembers(app, described) {
  const rows = described.memberships.map((member, at) => ({
    ...member,
    ...figures(described.partitions, member.member_id),
    colour: colourOf(at),
  }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "members" },
    h("h2", { id: "members" }, "Members"),
    rows.length === 0
      ? h("p", { class: "empty" }, "The group has no member now. Its positions stay, and its lag grows.")
      : h("div", { class: "ring-and-table" }, rows.some((it) => it.share) && keyRing(rows), memberTable(app, described, rows)),
  );
}

function figures(partitions, memberId) {
  const mine = partitions.flatMap((it) => (it.members ?? []).filter((row) => row.member_id === memberId));
  const of = (name) => sum(mine.map((it) => it[name]));
  return { ready_keys: of("ready_keys"), in_flight: of("in_flight"), draining_keys: of("draining_keys") };
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

function memberTable(app, { group }, rows) {
  const choice = app.choice(`members of ${group}`, () => ({ sort: { by: "Client", down: false } }));
  const columns = [
    { name: "Client", head: true, of: (it) => it.client_id, cell: (it) => [h("span", { class: `swatch ${it.colour}`, "aria-hidden": "true" }), it.client_id] },
    { name: "Host", wide: true, of: (it) => it.host },
    { name: "Keys", number: true, of: (it) => it.share ?? null, cell: (it) => percent(it.share) },
    { name: "Ready keys", number: true, wide: true, of: (it) => it.ready_keys, cell: (it) => short(it.ready_keys) },
    { name: "In flight", number: true, of: (it) => it.in_flight, cell: (it) => short(it.in_flight) },
    { name: "Draining", number: true, wide: true, of: (it) => it.draining_keys, cell: (it) => short(it.draining_keys) },
    { name: "Member id", wide: true, of: (it) => it.member_id, cell: (it) => h("code", null, it.member_id) },
  ];
  return table({ app, caption: "Members of the group", columns, rows, keyOf: (it) => it.member_id, sort: choice.sort, empty: "" });
}
