// The picture of a window: the offsets between its cursor and the end of the log, by their state.
// It takes the keyboard, too: with the focus on it, the arrow keys go from part to part.

import { h, s } from "./dom.js";
import { count, whole } from "./format.js";

const WIDE = 600;
const HIGH = 30;
const BEHIND_MAX = 0.2;
const WIDE_MIN = { parked: 3, in_flight: 2, backing_off: 2, dead_lettering: 2 };

/** By state: its name, and the height of its part, for those who see no colours. */
export const STATES = {
  settled: { name: "settled", high: 8 },
  behind: { name: "not read yet", high: 5 },
  ready: { name: "waiting", high: 15 },
  backing_off: { name: "backing off", high: 20 },
  in_flight: { name: "in flight", high: 25 },
  dead_lettering: { name: "on the way to the dead letters", high: 25 },
  parked: { name: "parked", high: 30 },
};

/** The parts of a window (WindowRow), and the records behind it that are not read yet. */
export function partsOf(window) {
  const parts = (window.runs ?? []).map((run) => ({ ...run }));
  const next = window.read_position ?? window.cursor;
  if (next !== undefined && next !== null && window.log_end > next) {
    parts.push({ state: "behind", first: next, last: window.log_end - 1 });
  }
  return parts;
}

/**
 * `spans`: [{first, last, state}], ascending, without gaps. The records behind the window take a
 * fifth of the picture at most: a long backlog must not hide it.
 */
export function windowPicture(name, spans, pointed, listeners) {
  if (spans.length === 0) return h("span", { class: "soft" }, "all settled");
  const places = placed(spans);
  const parts = spans.map((span, at) => {
    const { from, wide } = places[at];
    const { high } = STATES[span.state];
    return s("rect", {
      class: `w-${span.state}${pointed?.at === at ? " pointed" : ""}`,
      x: from.toFixed(2),
      y: HIGH - high,
      width: wide.toFixed(2),
      height: high,
      "data-at": at,
    });
  });
  return s(
    "svg",
    {
      ...listeners,
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

/** Where each part is drawn; one record is wide enough to be seen. */
function placed(spans) {
  const long = (span) => span.last - span.first + 1;
  const behind = spans.at(-1).state === "behind" ? long(spans.at(-1)) : 0;
  const window = spans.reduce((total, span) => total + long(span), 0) - behind;
  const share = window === 0 ? 1 : Math.min(BEHIND_MAX, behind / (window + behind));
  let from = 0;
  return spans.map((span) => {
    const exact = span.state === "behind" ? WIDE * share : (long(span) / window) * WIDE * (1 - share);
    const wide = Math.max(exact, WIDE_MIN[span.state] ?? 0.8);
    const place = { from: Math.min(from, WIDE - wide), wide };
    from += exact;
    return place;
  });
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
  return `${where} (${count(number, "offset")}): ${STATES[span.state].name}`;
}

/** Listeners that keep `pointed` = {key, at} up to date; `spans` of that window. */
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
    onfocus: () => point(pointed.key === key ? (pointed.at ?? 0) : 0),
    onblur: () => pointed.key === key && point(null),
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
