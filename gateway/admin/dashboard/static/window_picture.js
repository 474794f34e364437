// The picture of a window: the offsets between its cursor and the end of the log, by their state.
// It takes the keyboard, too: with the focus on it, the arrow keys go from part to part.

import { h, s } from "./dom.js";
import { count, whole } from "./format.js";

const WIDE = 600;
const HIGH = 30;

/** By state: its name, and the height of its part, for those who see no colours. */
export const STATES = {
  settled: { name: "settled", high: 8 },
  behind: { name: "not read yet", high: 5 },
  waiting: { name: "waiting", high: 15 },
  backing_off: { name: "backing off", high: 20 },
  in_flight: { name: "in flight", high: 25 },
  dead_lettering: { name: "on the way to the dead letters", high: 25 },
  parked: { name: "parked", high: 30 },
};

/** `spans`: [{first, last, state, ...}], ascending, without gaps. */
export function windowPicture(name, spans, pointed) {
  if (spans.length === 0) return h("span", { class: "soft" }, "all settled");
  const first = spans[0].first;
  const all = spans.at(-1).last - first + 1;
  const parts = spans.map((span, at) => {
    const from = ((span.first - first) / all) * WIDE;
    const wide = Math.max(((span.last - span.first + 1) / all) * WIDE, span.state === "parked" ? 3 : 0.7);
    const { high } = STATES[span.state];
    return s("rect", {
      class: `w-${span.state}${pointed?.at === at ? " pointed" : ""}`,
      x: Math.min(from, WIDE - wide).toFixed(2),
      y: HIGH - high,
      width: wide.toFixed(2),
      height: high,
      "data-at": at,
    });
  });
  return s(
    "svg",
    {
      class: "window",
      viewBox: `0 0 ${WIDE} ${HIGH}`,
      preserveAspectRatio: "none",
      role: "img",
      tabindex: "0",
      "aria-label": `${name}: ${summary(spans)}. Arrow keys show the parts.`,
    },
    parts,
  );
}

/** "120 settled, 4 in flight" */
export function summary(spans) {
  const records = new Map();
  for (const span of spans) {
    records.set(span.state, (records.get(span.state) ?? 0) + span.last - span.first + 1);
  }
  return [...records].map(([state, number]) => `${whole(number)} ${STATES[state].name}`).join(", ");
}

/** The part under the pointer or the keyboard, as text. */
export function spanText(span) {
  const number = span.last - span.first + 1;
  const where = number === 1 ? `offset ${whole(span.first)}` : `offsets ${whole(span.first)} to ${whole(span.last)}`;
  const held = span.member ? `, by ${span.member}` : "";
  const why = span.note ? `: ${span.note}` : "";
  return `${where} (${count(number, "record")}): ${STATES[span.state].name}${held}${why}`;
}

/** Listeners that keep `pointed` = {window, at} up to date; `spans` of that window. */
export function pointing(app, pointed, key, spans) {
  const point = (at) => {
    pointed.key = key;
    pointed.at = at;
    app.draw();
  };
  return {
    onpointermove: (event) => {
      const at = event.target.dataset?.at;
      if (at !== undefined) point(Number(at));
    },
    onpointerleave: () => pointed.key === key && point(null),
    onfocusin: () => point(pointed.key === key ? (pointed.at ?? 0) : 0),
    onfocusout: () => pointed.key === key && point(null),
    onkeydown: (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      point(Math.min(spans.length - 1, Math.max(0, (pointed.at ?? 0) + by)));
    },
  };
}

/** The meaning of the colours. */
export function legend() {
  return h(
    "ul",
    { class: "legend", "aria-label": "Colours of the windows" },
    Object.entries(STATES).map(([state, { name }]) =>
      h("li", { key: state }, h("span", { class: `swatch w-${state}`, "aria-hidden": "true" }), name),
    ),
  );
}
