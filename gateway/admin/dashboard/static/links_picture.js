// The picture of the links: the tree of the clusters at the top, a column for each cluster below it,
// and an arrow with its lag for each link. Lengths along the screen are parts of it, so that the
// text has one size on a phone and on a wall.

import { h, s } from "./dom.js";
import { count, duration } from "./format.js";

const NODE_HIGH = 32; // a row of the tree
const NAME_HIGH = 26; // the row of the names
const LEVEL_HIGH = 22; // a line that names the level of the links below it
const LINK_HIGH = 34;
const FIT = 5; // columns that a phone has room for; more of them are moved sideways
const COLUMN_WIDE = 110;

/** The clusters below a node, from left to right. */
export function leavesOf(node) {
  return typeof node === "string" ? [node] : node.children.flatMap(leavesOf);
}

/** `links`: [{source, target, level, tone, said}]; `tree`: {level, children}. */
export function linksPicture(tree, links) {
  const names = leavesOf(tree);
  const wide = names.length > FIT;
  const placed = placedTree(tree, names);
  const top = placed.high + NAME_HIGH;
  const { arrows, high } = placedLinks(links, names, top);
  const picture = s(
    "svg",
    {
      class: "links-picture",
      width: wide ? COLUMN_WIDE * names.length : "100%",
      height: high,
      role: "img",
      "aria-label": summary(names, links),
    },
    names.map((_, at) => s("line", { class: "life", x1: middle(at, names), x2: middle(at, names), y1: top, y2: high })),
    placed.parts,
    names.map((name, at) => nameOf(name, at, names, placed.high)),
    arrows,
  );
  if (!wide) return picture;
  return h("div", { class: "sideways", tabindex: "0", role: "group", "aria-label": "Picture of the links, to be moved sideways" }, picture);
}

/** All of it as a sentence. */
function summary(names, links) {
  const said = links.map((it) => `${it.source} to ${it.target} at level ${it.level}: ${it.said}`);
  return `${count(names.length, "cluster")}: ${names.join(", ")}. Links: ${said.join("; ")}.`;
}

function percent(share) {
  return `${(share * 100).toFixed(3)}%`;
}

function middle(at, names) {
  return percent((at + 0.5) / names.length);
}

/** Lines, and over them the nodes with their levels; `high`: of all rows of the tree. */
function placedTree(tree, names) {
  const high = NODE_HIGH * depthOf(tree);
  const lines = [];
  const nodes = [];
  const place = (node, depth) => {
    if (typeof node === "string") return { x: (names.indexOf(node) + 0.5) / names.length, y: high };
    const y = NODE_HIGH * (depth + 0.5);
    const below = node.children.map((child) => place(child, depth + 1));
    const x = (below[0].x + below.at(-1).x) / 2;
    lines.push(
      s("line", { class: "branch", x1: percent(below[0].x), x2: percent(below.at(-1).x), y1: y, y2: y }),
      below.map((child) => s("line", { class: "branch", x1: percent(child.x), x2: percent(child.x), y1: y, y2: child.y })),
    );
    nodes.push(
      s("circle", { class: "node", cx: percent(x), cy: y, r: 11 }),
      s("text", { class: "level", x: percent(x), y: y + 4 }, String(node.level)),
    );
    return { x, y };
  };
  place(tree, 0);
  return { parts: [lines, nodes], high };
}

function depthOf(node) {
  return typeof node === "string" ? 0 : 1 + Math.max(...node.children.map(depthOf));
}

/** Long names end in dots; the whole name is shown by hovering, and stands in the table. */
function nameOf(name, at, names, y) {
  return s(
    "foreignObject",
    { x: percent(at / names.length), y, width: percent(1 / names.length), height: NAME_HIGH },
    h("div", { class: "leaf", title: name }, name),
  );
}

/** An arrow in a row of its own for each link, the links of a level together. */
function placedLinks(links, names, top) {
  const arrows = [];
  let y = top;
  let level = null;
  for (const link of [...links].sort((one, other) => one.level - other.level)) {
    if (link.level !== level) {
      level = link.level;
      y += LEVEL_HIGH;
      arrows.push(s("text", { class: "of-level", x: 0, y: y - 5 }, `level ${level}`));
    }
    y += LINK_HIGH;
    arrows.push(arrow(link, names, y - 9));
  }
  return { arrows, high: y + 6 };
}

function arrow({ source, target, tone, said, level }, names, y) {
  const [from, to] = [names.indexOf(source), names.indexOf(target)];
  const right = to > from;
  // The text begins at the arrow's end that has more room beside it.
  const left = (from + to + 1) / 2 <= names.length / 2;
  const [start, end] = right ? [from, to] : [to, from];
  return s(
    "g",
    { class: `arrow ${tone || "idle"}`, "data-link": `${source} ${level}` },
    s("title", null, `${source} to ${target}: ${said}`),
    s("line", { x1: middle(from, names), x2: middle(to, names), y1: y, y2: y }),
    s("circle", { cx: middle(from, names), cy: y, r: 3.5 }),
    s("svg", { x: middle(to, names), y, overflow: "visible" }, s("path", { d: right ? "M0 0L-9 -5V5Z" : "M0 0L9 -5V5Z" })),
    s("text", { class: left ? "from-left" : "from-right", x: middle(left ? start : end, names), dx: left ? 7 : -7, y: y - 7 }, said),
  );
}

/** "1,204 records · 3 s": the lag of a link. */
export function lagText({ records, seconds }) {
  return `${count(records, "record")} · ${seconds === 0 ? "0 s" : duration(seconds * 1000)}`;
}
