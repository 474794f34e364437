// The audit: the last changes, looks at values and refusals, for admins.

import { h } from "../dom.js";
import { whole } from "../format.js";
import { at } from "../rest.js";
import { answered, search, table } from "../table.js";

const SHOWN = 200;
const EVERY_MS = 5_000;

export function drawAudit(app) {
  const answer = app.answers.use(at("/v1/audit", { limit: SHOWN }), { everyMs: EVERY_MS });
  const choice = app.choice("audit", () => ({ words: "" }));
  const columns = [
    { name: "When", head: true, cell: (it) => new Date(it.at_ms).toISOString().replace("T", " ").slice(0, 19) },
    { name: "Who", cell: (it) => it.who ?? (it.role ? "anybody" : "a stranger") },
    { name: "From", wide: true, cell: (it) => it.address },
    { name: "Action", cell: (it) => h("code", null, it.action) },
    { name: "About", cell: aboutOf },
    { name: "Outcome", cell: (it) => (it.count > 1 ? `${it.outcome}, ${whole(it.count)} times` : it.outcome) },
  ];
  return [
    h("h1", null, "Audit"),
    h(
      "section",
      { class: "panel", "aria-labelledby": "audit" },
      h("h2", { id: "audit" }, "Changes, looks at values, refusals"),
      h("p", { class: "soft" }, "The latest first, times in UTC. The log has all of them, also from before the node started."),
      answered(answer, ({ audit, next }) => {
        const words = choice.words.toLowerCase();
        const rows = audit.filter((it) => JSON.stringify(it).toLowerCase().includes(words));
        return [
          search({ app, choice, id: "find-audit", label: "Find in the audit", placeholder: "who, group, action …" }),
          table({ caption: "Audit", columns, rows, keyOf: (it) => it.id, empty: "Nothing was changed or refused." }),
          next && h("p", { class: "soft" }, `The last ${whole(SHOWN)}; keyway audit shows more.`),
        ];
      }),
    ),
  ];
}

function aboutOf({ group, topic, partition, offsets, target }) {
  const place = topic && (partition === null || partition === undefined ? topic : `${topic}-${partition}`);
  return [group, place, offsets, target].filter(Boolean).join(" · ") || "–";
}
