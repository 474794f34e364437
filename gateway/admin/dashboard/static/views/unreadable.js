// Places where a group cannot read on, and giving a batch up that stands in its way.

import { askFirst } from "../dialog.js";
import { h } from "../dom.js";
import { count, whole } from "../format.js";
import { ask, at } from "../rest.js";
import { answered, table } from "../table.js";
import { mayAct } from "./login.js";
import { placeOf } from "./partitions.js";

const SHOWN = 200;

export function drawUnreadable(app, { group }) {
  const answer = app.answers.use(at("/v1/unreadable", { group, limit: SHOWN }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "unreadable" },
    h("h2", { id: "unreadable" }, "Unreadable records"),
    h("p", { class: "soft" }, "The group stops at such records in their partition, and reads on once they are mended or skipped. Other partitions go on."),
    answered(answer, (shown) => [
      table({ caption: "Unreadable records", columns: columns(app, group), rows: shown.unreadable, keyOf: placeOf, empty: "The group can read everything." }),
      shown.next && h("p", { class: "soft" }, `The first ${SHOWN} are shown: keyway group unreadable lists all.`),
    ]),
  );
}

function columns(app, group) {
  return [
    { name: "Partition", head: true, cell: placeOf },
    { name: "Offsets", cell: offsetsOf },
    { name: "Reason", cell: (it) => it.reason },
    mayAct(app) && {
      name: "Decision",
      cell: (it) =>
        it.last_offset === null
          ? h("span", { class: "soft" }, "cannot be skipped")
          : h("button", { onclick: () => skip(app, group, it) }, "Skip …", h("span", { class: "hidden" }, ` ${placeOf(it)}`)),
    },
  ].filter(Boolean);
}

function offsetsOf({ offset, last_offset: last }) {
  return last === null ? `from ${whole(offset)}` : last === offset ? whole(offset) : `${whole(offset)} to ${whole(last)}`;
}

function skip(app, group, row) {
  const { topic, partition, offset, last_offset: last } = row;
  askFirst({
    title: `Skip offsets ${offsetsOf(row)} of ${placeOf(row)}?`,
    verb: "Skip",
    danger: true,
    effect: [
      h("p", null, `${count(last - offset + 1, "offset")} will count as settled: ${group} never gets the records there, and reads on at offset ${whole(last + 1)}.`),
      h("p", { class: "soft" }, row.reason),
    ],
    act: async () => {
      const { skipped } = await ask("POST", "/v1/unreadable/skip", { group, topic, partition, offset });
      return `Offsets ${offsetsOf(skipped)} of ${placeOf(skipped)} skipped.`;
    },
    done: app.refresh,
  });
}
