// Clients: where they come in and who authenticates them there; what the rules of `limits` let them
// take, what they have taken, and who has to wait now.

import { h } from "../dom.js";
import { bytes, count, duration, short, whole } from "../format.js";
import { at } from "../rest.js";
import { answered, table } from "../table.js";

const SHOWN = 200;
const CERTIFICATE_WARNING_MS = 14 * 86_400_000; // as /health
const RATES = [
  { name: "Requests", used: "requests", limit: "requests_per_s", shown: short },
  { name: "In", used: "bytes_in", limit: "bytes_in_per_s", shown: bytes },
  { name: "Out", used: "bytes_out", limit: "bytes_out_per_s", shown: bytes },
];

export function drawClients(app) {
  return [h("h1", null, "Clients"), listeners(app), limits(app)];
}

function listeners(app) {
  const answer = app.answers.use("/v1/listeners");
  return h(
    "section",
    { class: "panel", "aria-labelledby": "listeners" },
    h("h2", { id: "listeners" }, "Listeners"),
    answered(answer, (shown) => [
      table({ caption: "Listeners", columns: LISTENERS, rows: shown.listeners, keyOf: (it) => it.listener, empty: "The node has no listener." }),
      shown.listeners.flatMap((it) => it.problems).map((it) => h("p", { class: "problem" }, `${it}.`)),
    ]),
  );
}

const LISTENERS = [
  { name: "Listener", head: true, cell: (it) => h("span", { class: "name" }, it.listener) },
  { name: "Bootstrap", cell: (it) => h("code", null, it.bootstrap ?? "–") },
  { name: "Connections", number: true, wide: true, cell: (it) => whole(it.connections) },
  { name: "TLS", cell: certificate },
  { name: "Failed handshakes", number: true, wider: true, cell: (it) => (it.tls ? whole(it.handshakes_failed) : "–") },
  { name: "Authenticates", cell: (it) => (it.authenticated_by === "upstream" ? "Kafka" : it.mechanisms.join(", ")) },
  { name: "Logins", number: true, wide: true, cell: (it) => ofGateway(it, whole(sum(it.logins.filter(({ outcome }) => outcome === "accepted")))) },
  { name: "Refused", wide: true, cell: (it) => ofGateway(it, refusals(it)) },
  { name: "Sessions ended", wider: true, cell: (it) => ofGateway(it, counts(Object.entries(it.sessions_ended))) },
];

function certificate({ tls, expires_ms: ends }) {
  if (!tls) return h("span", { class: "soft" }, "plain");
  const left = ends - Date.now();
  const until = new Date(ends).toISOString().slice(0, 10);
  if (left <= 0) return h("span", { class: "pill bad" }, `ended ${until}`);
  return h("span", { class: left <= CERTIFICATE_WARNING_MS ? "pill warn" : "" }, `until ${until}`);
}

/** Where Kafka authenticates, the exchange passes through, and the node counts no logins. */
function ofGateway({ authenticated_by: by }, shown) {
  return by === "gateway" ? shown : "–";
}

function refusals({ logins }) {
  const reasons = new Map();
  for (const { outcome, count: more } of logins) {
    if (outcome !== "accepted") reasons.set(outcome, (reasons.get(outcome) ?? 0) + more);
  }
  return counts([...reasons]);
}

function counts(pairs) {
  return pairs.length === 0 ? "0" : pairs.map(([why, more]) => `${why.replaceAll("_", " ")} ${whole(more)}`).join(", ");
}

function sum(rows) {
  return rows.reduce((all, it) => all + it.count, 0);
}

function limits(app) {
  const choice = app.choice("limits", () => ({ reached: false, before: null, now: null }));
  const answer = app.answers.use(at("/v1/limits", { limit: SHOWN, reached: choice.reached || undefined }));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "limits" },
    h("h2", { id: "limits" }, "Limits of clients"),
    answered(answer, (shown) => (shown.total === 0 ? nobody() : accounts(app, choice, answer, shown))),
  );
}

function nobody() {
  return h("p", { class: "empty" }, "No rule of limits in keyway.yaml has matched a client yet.");
}

function accounts(app, choice, answer, shown) {
  remember(choice, answer);
  const only = (event) => {
    choice.reached = event.target.checked;
    app.draw();
  };
  return [
    h("p", { class: "soft" }, "The first rule that matches a client counts. The figures are those of this node: of each account's clients together, rates of the last seconds."),
    h(
      "p",
      null,
      h("label", null, h("input", { type: "checkbox", id: "reached", checked: choice.reached, onchange: only }), " only those that have reached a limit"),
    ),
    table({ caption: "Limits of clients", columns: columns(choice), rows: shown.limits, keyOf, empty: "No account has reached a limit." }),
    shown.next && h("p", { class: "soft" }, `The first ${SHOWN} are shown: keyway limit list lists all ${whole(shown.total)}.`),
  ];
}

function columns(choice) {
  return [
    { name: "Rule", head: true, cell: (it) => h("span", { class: "name" }, it.rule) },
    { name: "Who", cell: (it) => it.who ?? "all its clients" },
    { name: "Now", cell: standing },
    { name: "Connections", number: true, wide: true, cell: (it) => of(whole, it.connections, it.connections_max) },
    ...RATES.map(({ name, used, limit, shown }) => ({
      name: `${name} a second`,
      number: true,
      wide: true,
      cell: (it) => of(shown, rate(choice, it, used), it[limit]),
    })),
    { name: "Share sessions", number: true, wider: true, cell: (it) => of(whole, it.share_sessions, it.share_sessions_max) },
    { name: "Held back", number: true, wider: true, cell: (it) => count(it.muted, "request") },
    { name: "Refused", number: true, wider: true, cell: (it) => whole(it.refused) },
  ];
}

function standing({ wait_ms: wait, reached }) {
  if (wait > 0) return h("span", { class: "pill warn" }, `waits ${duration(wait)}`);
  if (reached.length > 0) return h("span", { class: "pill warn" }, "full");
  return h("span", { class: "pill good" }, "free");
}

function of(shown, used, limit) {
  return limit === null ? shown(used) : [shown(used), h("span", { class: "soft" }, ` of ${shown(limit)}`)];
}

/** Keeps the last two answers: their difference is what clients take now. */
function remember(choice, { data, atMs }) {
  if (choice.now?.data === data) return;
  choice.before = choice.now;
  choice.now = { data, atMs, rows: new Map(data.limits.map((it) => [keyOf(it), it])) };
}

/** A second; null: not known yet. */
function rate({ before, now }, row, used) {
  const earlier = before?.rows.get(keyOf(row));
  return earlier ? Math.max(0, ((row[used] - earlier[used]) * 1_000) / (now.atMs - before.atMs)) : null;
}

function keyOf({ rule, who }) {
  return JSON.stringify([rule, who]);
}
