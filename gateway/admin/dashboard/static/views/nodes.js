// Several nodes: which live, what each owns, what moves, and an operator's orders about them.

import { askFirst } from "../dialog.js";
import { h } from "../dom.js";
import { count, duration } from "../format.js";
import { ask } from "../rest.js";
import { answered, table } from "../table.js";
import { mayOrder } from "./login.js";

const SLOT = 1_000_000; // slot s of broker n is n + s * SLOT

export function drawNodes(app) {
  const answer = app.answers.use("/v1/nodes");
  return [
    h("h1", null, "Nodes"),
    h(
      "section",
      { class: "panel", "aria-labelledby": "nodes" },
      h("h2", { id: "nodes" }, "Nodes that share one Redis"),
      answered(answer, (shown) => (shown.node === null ? alone() : list(app, shown))),
    ),
  ];
}

/** Whether the view is worth a way to it. */
export function severalNodes({ overview }) {
  return Boolean(overview && (overview.health.node !== undefined || overview.nodes.length > 0));
}

function alone() {
  return h("p", { class: "empty" }, "This node stands alone: it owns all virtual brokers.");
}

function list(app, shown) {
  return [
    h("p", { class: "soft" }, "Each virtual broker has one owner, which serves the share groups' records of its partitions and the members of the groups that it coordinates. A planned move takes about a second."),
    table({ caption: "Nodes", columns: columns(app, shown), rows: shown.nodes, keyOf: (it) => it.node, empty: "No node was heard of yet." }),
    h("p", { class: "soft" }, "keyway node move gives a virtual broker to a node of your choice."),
  ];
}

function columns(app, shown) {
  return [
    { name: "Node", head: true, cell: (it) => [h("span", { class: "name" }, it.node), it.node === shown.node && h("span", { class: "soft" }, " this one")] },
    { name: "State", cell: statePill },
    { name: "Owns", cell: (it) => brokers(it.owns) },
    { name: "Hands over", wide: true, cell: (it) => brokers(it.moving) },
    { name: "Put there", wide: true, cell: (it) => brokers(it.placed) },
    { name: "Clients know", wide: true, cell: (it) => adoption(it, shown) },
    { name: "Heard", number: true, wide: true, cell: (it) => `${duration(it.heard_ms)} ago` },
    { name: "REST", wider: true, cell: (it) => it.admin ?? "–" },
    mayOrder(app) && { name: "Order", cell: (it) => order(app, it) },
  ].filter(Boolean);
}

function statePill({ state, drained }) {
  if (state === "gone") return h("span", { class: "pill bad" }, "gone");
  if (drained) return h("span", { class: "pill warn" }, "drained");
  return h("span", { class: `pill ${state === "up" ? "good" : "warn"}` }, state);
}

function brokers(ids) {
  return ids.length === 0 ? "–" : ids.map(brokerName).join(", ");
}

function brokerName(id) {
  return id < SLOT ? `${id}` : `${id % SLOT} slot ${Math.floor(id / SLOT)}`;
}

/** How far clients of the node have come with Metadata. */
function adoption({ state, adopted }, { generation }) {
  if (state === "gone" || adopted === null) return "–";
  if (adopted === 0) return "not asked yet";
  return adopted >= generation ? "the owners of now" : h("span", { class: "warn" }, "earlier owners");
}

function order(app, row) {
  if (row.state === "gone") return h("span", { class: "soft" }, "–");
  const [verb, act] = row.drained ? ["Undrain", undrain] : ["Drain", drain];
  return h("button", { onclick: () => act(app, row) }, `${verb} …`, h("span", { class: "hidden" }, ` ${row.node}`));
}

function drain(app, { node, owns }) {
  askFirst({
    title: `Drain node ${node}?`,
    verb: "Drain",
    danger: true,
    effect: [
      h("p", null, owns.length > 0 ? `Other nodes get ${count(owns.length, "virtual broker")} of it: ${brokers(owns)}.` : "It owns nothing now."),
      h("p", { class: "soft" }, "It gets nothing more until it is undrained or restarted. Records of the partitions that move wait for about a second."),
    ],
    act: () => ordered("drain", node, `Node ${node} is being drained.`),
    done: app.refresh,
  });
}

function undrain(app, { node }) {
  askFirst({
    title: `Undrain node ${node}?`,
    verb: "Undrain",
    effect: h("p", null, "It may own virtual brokers again, and gets its part."),
    act: () => ordered("undrain", node, `Node ${node} may own virtual brokers again.`),
    done: app.refresh,
  });
}

async function ordered(what, node, said) {
  await ask("POST", `/v1/nodes/${what}`, { node });
  return said;
}
