// Keys that move between members, and keys that hold a window up.

import { h } from "../dom.js";
import { whole } from "../format.js";
import { table } from "../table.js";
import { placeOf } from "./partitions.js";

export function drawKeys(app, described) {
  return draining(described);
}

function draining(described) {
  const clients = new Map(described.memberships.map((it) => [it.member_id, it.client_id]));
  const rows = described.partitions.flatMap((partition) =>
    (partition.draining ?? []).map((row, at) => ({ ...row, at, place: placeOf(partition) })),
  );
  const columns = [
    { name: "Key (hash)", head: true, cell: (it) => h("code", null, it.key_hash ?? "no key") },
    { name: "Partition", cell: (it) => it.place },
    { name: "Held by", wide: true, cell: (it) => clients.get(it.member_id) ?? it.member_id },
    { name: "In flight", number: true, cell: (it) => whole(it.in_flight) },
    { name: "Waiting", number: true, cell: (it) => whole(it.blocked) },
    { name: "Attempts", number: true, wide: true, cell: (it) => whole(it.attempts) },
  ];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "draining" },
    h("h2", { id: "draining" }, "Draining keys"),
    h("p", { class: "soft" }, "Keys whose next record goes to another member, once the records that the old one holds are settled."),
    table({ caption: "Draining keys", columns, rows, keyOf: (it) => `${it.place} ${it.key_hash} ${it.at}`, empty: "No key changes hands now." }),
  );
}
