// Tables: real ones with a caption and headers, sorted by a click on a header.

import { h } from "./dom.js";

/**
 * `columns`: [{name, of (sorts by it; absent: not sortable), cell (shows it), number, wide (hidden
 * on phones), wider, widest (also on tablets), head (it names the row)}]; `sort`: {by, down}, changed in place.
 */
export function table({ caption, columns, rows, keyOf, sort, app, empty }) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  const inOrder = sort ? sorted(rows, columns, sort) : rows;
  return h(
    "table",
    null,
    h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, columns.map((column) => header(column, sort, app)))),
    h(
      "tbody",
      null,
      inOrder.map((row) =>
        h("tr", { key: keyOf(row) }, columns.map((column) => cell(column, row))),
      ),
    ),
  );
}

function header(column, sort, app) {
  const classes = classOf(column);
  if (!sort || !column.of) return h("th", { scope: "col", class: classes }, column.name);
  const mine = sort.by === column.name;
  const turn = () => {
    sort.down = mine ? !sort.down : Boolean(column.number);
    sort.by = column.name;
    app.draw();
  };
  return h(
    "th",
    { scope: "col", class: classes, "aria-sort": mine ? (sort.down ? "descending" : "ascending") : null },
    h("button", { class: "sort", onclick: turn }, column.name, h("span", { "aria-hidden": "true" }, mine ? (sort.down ? " ↓" : " ↑") : "")),
  );
}

function cell(column, row) {
  const shown = column.cell ? column.cell(row) : column.of(row);
  if (column.head) return h("th", { scope: "row", class: classOf(column) }, shown);
  return h("td", { class: classOf(column) }, shown);
}

function classOf(column) {
  return [column.number && "number", column.wide && "wide", column.wider && "wider", column.widest && "widest", column.line && "line", column.picture && "picture"].filter(Boolean).join(" ");
}

/** By a column; `sort`: {by, down}. */
export function sorted(rows, columns, sort) {
  const column = columns.find((it) => it.name === sort.by);
  if (!column?.of) return rows;
  const order = (one, other) => {
    const [a, b] = [column.of(one), column.of(other)];
    if (a === null || b === null) return (b === null) - (a === null);
    return a < b ? -1 : a > b ? 1 : 0;
  };
  const inOrder = [...rows].sort(order);
  return sort.down ? inOrder.reverse() : inOrder;
}

/** A button in a row that shows or hides its details, the element `shows`; `choice`: {chosen}. */
export function chooser(app, choice, name, text, shows) {
  const open = choice.chosen === name;
  const turn = () => {
    choice.chosen = open ? null : name;
    app.draw();
  };
  return h("button", { class: "chooser", "aria-expanded": String(open), "aria-controls": open ? shows : null, onclick: turn }, text);
}

/** Letters to find rows by; `choice`: {words}, changed in place. */
export function search({ app, choice, id, label, placeholder }) {
  const changed = (event) => {
    choice.words = event.target.value;
    app.draw();
  };
  return h(
    "p",
    { class: "search" },
    h("label", { for: id, class: "hidden" }, label),
    h("input", { id, type: "search", placeholder, value: choice.words, oninput: changed }),
  );
}

/** The parts that every answer has besides its data: not there yet, failed, or old. */
export function answered(answer, shown) {
  if (answer.data) {
    return [
      answer.problem && h("p", { class: "problem", role: "alert" }, `Not renewed: ${answer.problem.message}.`),
      shown(answer.data),
    ];
  }
  if (!answer.problem) return [h("p", { class: "loading", role: "status" }, "Loading …")];
  const { status, message } = answer.problem;
  if (status === 403) return [h("p", { class: "empty" }, `You may not see this: ${message}.`)];
  return [h("p", { class: "problem", role: "alert" }, `${message}.`)];
}
