// Topics that groups read, the virtual brokers of the node, and the connections of its clients.

import { h, named } from "../dom.js";
import { bytes, count, duration, short, some, whole } from "../format.js";
import { at } from "../rest.js";
import { groupAddress } from "../routes.js";
import { stockCommands } from "../stock_tool.js";
import { answered, search, sorted, table } from "../table.js";
import { drawRepartitions } from "./repartitions.js";

const SHOWN = 200;
const SEARCHED = 1_000; // connections; the rest has no room in one answer
const CONNECTIONS_SHOWN = 100;

export function drawTopics(app) {
  return [h("h1", null, "Topics and connections"), topics(app), drawRepartitions(app), brokers(app), connections(app)];
}

function panel(id, title, ...content) {
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), content);
}

function topics(app) {
  const answer = app.answers.use(at("/v1/topics", { limit: SHOWN }));
  const choice = app.choice("topics", () => ({ sort: { by: "Lag", down: true } }));
  const groups = (topic) =>
    topic.groups.slice(0, 6).map((it) => [h("a", { href: groupAddress(it.group) }, named(it.group)), h("span", { class: "soft" }, ` ${short(it.lag)}  `)]);
  const columns = [
    { name: "Topic", head: true, of: (it) => it.topic, cell: (it) => named(it.topic) },
    { name: "Partitions", number: true, of: (it) => it.partitions, cell: partitionsOf },
    { name: "Groups, lag of each", wide: true, cell: groups },
    { name: "Lag", number: true, of: (it) => it.lag, cell: (it) => short(it.lag) },
  ];
  return panel(
    "topics",
    "Topics that groups read",
    answered(answer, (shown) => [
      table({ app, caption: "Topics", columns, rows: shown.topics, keyOf: (it) => it.topic, sort: choice.sort, empty: "No group reads a topic yet." }),
      shown.topics.length > 0 && stockCommands(app, "topics", topicCommands(sorted(shown.topics, columns, choice.sort)[0].topic)),
    ]),
  );
}

/** About the topic that stands first. */
function topicCommands(topic) {
  return [
    { what: `Partitions, replicas and settings of ${topic}`, words: ["kafka-topics.sh", "--describe", "--topic", topic] },
    { what: "Its first records", words: ["kafka-console-consumer.sh", "--topic", topic, "--from-beginning", "--max-messages", "10"] },
    { what: "Who may do what with it", words: ["kafka-acls.sh", "--list", "--topic", topic] },
  ];
}

function partitionsOf(topic) {
  if (topic.partitions === null) return h("span", { class: "pill bad" }, "not upstream");
  if (topic.leaderless > 0) return [whole(topic.partitions), h("span", { class: "pill warn" }, `${topic.leaderless} without a leader`)];
  return whole(topic.partitions);
}

function brokers(app) {
  const answer = app.answers.use(at("/v1/brokers", { limit: SHOWN }));
  const columns = [
    { name: "Broker", head: true, cell: (it) => String(it.broker) },
    { name: "State", cell: (it) => [h("span", { class: `pill ${it.state === "up" ? "good" : "bad"}` }, it.state), it.reason && h("span", { class: "soft" }, ` ${it.reason}`)] },
    { name: "For clients", cell: (it) => it.address ?? "no port to be had" },
    { name: "Upstream", wide: true, cell: (it) => it.upstream },
    { name: "Connections", number: true, cell: (it) => whole(it.connections) },
    { name: "Leads", number: true, wide: true, cell: (it) => count(it.partitions, "partition") },
  ];
  return panel(
    "brokers",
    "Virtual brokers",
    answered(answer, (shown) => [
      h("p", { class: "soft" }, `First contact: ${shown.bootstrap ?? "closed"}, ${count(shown.bootstrap_connections, "connection")}.`),
      table({ caption: "Virtual brokers", columns, rows: shown.brokers, keyOf: (it) => it.broker, empty: "The upstream's brokers are not known yet." }),
      shown.next && h("p", { class: "soft" }, `The first ${whole(shown.brokers.length)} are shown.`),
    ]),
  );
}

function connections(app) {
  const answer = app.answers.use(at("/v1/connections", { limit: SEARCHED }));
  const choice = app.choice("connections", () => ({ words: "", sort: { by: "Sent", down: true } }));
  const words = choice.words.toLowerCase().trim();
  const age = (row) => (app.overview ? duration(Math.max(0, app.overview.at_ms - row.since_ms)) : "–");
  const columns = [
    { name: "Client", head: true, of: (it) => it.client_id ?? "", cell: (it) => it.client_id ?? "–" },
    { name: "From", wide: true, of: (it) => it.host, cell: (it) => `${it.host}:${it.port}` },
    { name: "Broker", number: true, of: (it) => it.broker, cell: (it) => it.broker ?? "first contact" },
    { name: "Age", number: true, wide: true, of: (it) => -it.since_ms, cell: age },
    { name: "Sent", number: true, of: (it) => it.bytes_in, cell: (it) => bytes(it.bytes_in) },
    { name: "Got", number: true, wide: true, of: (it) => it.bytes_out, cell: (it) => bytes(it.bytes_out) },
    { name: "Waits for", wide: true, cell: (it) => some(it.in_flight.map((api) => api.replaceAll("_", " ").toLowerCase()), 2) || "–" },
  ];
  return panel(
    "connections",
    "Connections",
    search({ app, choice, id: "connection-words", label: "Connections with these letters", placeholder: "client, host, broker or group" }),
    answered(answer, ({ connections: known, total }) => {
      const found = known.filter((it) => matches(it, words));
      const rows = sorted(found, columns, choice.sort).slice(0, CONNECTIONS_SHOWN);
      return [
        table({ app, caption: "Connections of clients", columns, rows, keyOf: (it) => it.id, sort: choice.sort, empty: words ? "No connection has these letters." : "No client is connected." }),
        rows.length < found.length && h("p", { class: "soft" }, `${whole(rows.length)} of ${whole(found.length)} are shown.`),
        known.length < total && h("p", { class: "soft" }, `${whole(known.length)} of ${count(total, "connection")} are searched: keyway connection list has all.`),
      ];
    }),
  );
}

function matches({ client_id: client, host, port, broker, members }, words) {
  const texts = [client ?? "", `${host}:${port}`, broker === null ? "first contact" : `broker ${broker}`, ...members];
  return texts.some((text) => text.toLowerCase().includes(words));
}
