// The keys of a group: the hot ones, one that is looked up, and those that change hands.

import { h } from "../dom.js";
import { whole } from "../format.js";
import { at } from "../rest.js";
import { answered, table } from "../table.js";
import { placeOf } from "./partitions.js";

export function drawKeys(app, described) {
  const clients = new Map(described.memberships.map((it) => [it.member_id, it.client_id]));
  return [keys(app, described, clients), draining(described, clients)];
}

function stateOf({ state }) {
  if (state === "idle") return h("span", { class: "soft" }, "nothing unsettled");
  return h("span", { class: `pill ${state === "parked" ? "bad" : ""}` }, state.replaceAll("_", " "));
}

/** The key itself, for who may see it, or else its hash. */
export function keyName(row) {
  if (row.key !== undefined && row.key !== null) return h("span", { class: "key" }, row.key);
  return h("code", null, row.key_base64 ?? row.key_hash ?? "no key");
}

function keys(app, { group }, clients) {
  const choice = app.choice(`keys of ${group}`, () => ({ words: "", wanted: "" }));
  const answer = app.answers.use(at("/v1/keys", { group, key: choice.wanted || undefined }));
  const find = (event) => {
    event.preventDefault();
    choice.wanted = choice.words;
    app.draw();
  };
  return h(
    "section",
    { class: "panel", "aria-labelledby": "keys" },
    h(
      "div",
      { class: "head" },
      h("h2", { id: "keys" }, choice.wanted ? "One key" : "Hot keys"),
      h(
        "form",
        { class: "search", onsubmit: find },
        h("label", { for: "key", class: "hidden" }, "A key to look up"),
        h("input", { id: "key", type: "search", placeholder: "look a key up, then Enter", value: choice.words, oninput: (event) => { choice.words = event.target.value; } }),
      ),
    ),
    answered(answer, (shown) => [
      choice.wanted && shown.keys.length > 0 && shown.keys.every((it) => it.records === 0) && unknownKey(choice.wanted),
      keyTable(shown.keys, clients, choice.wanted),
    ]),
  );
}

/** The node knows the keys of unsettled records only. */
function unknownKey(key) {
  return h("p", { class: "problem", role: "status" }, "No record of ", h("span", { class: "key" }, key), " is unsettled: all are settled, or not read yet, or the key was never used. The owner is the member that its next record would go to.");
}

function keyTable(rows, clients, wanted) {
  const columns = [
    { name: "Key", head: true, cell: keyName },
    { name: "Partition", cell: placeOf },
    { name: "State", cell: stateOf },
    { name: "Owner", wide: true, cell: (it) => (it.owner === null ? "nobody" : (clients.get(it.owner) ?? it.owner)) },
    { name: "Unsettled", number: true, cell: (it) => whole(it.records) },
    { name: "In flight", number: true, wide: true, cell: (it) => whole(it.in_flight ?? 0) },
    { name: "Attempts", number: true, wide: true, cell: (it) => whole(it.attempts ?? 0) },
    { name: "Came back", wide: true, cell: (it) => (it.reason ?? "–").replaceAll("_", " ") },
  ];
  return table({
    caption: wanted ? "The key in each partition" : "Keys with the most unsettled records",
    columns,
    rows,
    keyOf: (it) => `${placeOf(it)} ${it.key_hash} ${it.first_offset}`,
    empty: wanted ? "No partition of the group has this key." : "No key has unsettled records in memory.",
  });
}

function draining(described, clients) {
  const rows = described.partitions.flatMap((partition) =>
    (partition.draining ?? []).map((row, index) => ({ ...row, index, place: placeOf(partition) })),
  );
  const columns = [
    { name: "Key", head: true, cell: keyName },
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
    h("p", { class: "soft" }, "The next record of such a key goes to another member, once the records that the old one holds are settled."),
    table({ caption: "Draining keys", columns, rows, keyOf: (it) => `${it.place} ${it.key_hash} ${it.index}`, empty: "No key changes hands now." }),
  );
}
