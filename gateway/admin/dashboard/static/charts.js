// Drawings in SVG: sparklines, lines with a scale, the ring of a group's members, bars. Each has its
// meaning as text. Colours that are computed are attributes: the content policy allows no styles.

import { h, s } from "./dom.js";
import { duration, short } from "./format.js";

const WIDE = 120;
const HIGH = 28;
const TURN = 137.508; // the golden angle: hues of neighbours, and of many, lie far apart
const LIGHT = ["42%", "60%", "30%"];

/** The line of the last values, from zero to their largest; null: not known. */
export function sparkline(values, said, tone = "") {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const step = WIDE / Math.max(1, known.length - 1);
  const points = known.map((value, at) => `${(at * step).toFixed(1)} ${(HIGH - 2 - (value / most) * (HIGH - 4)).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  return s(
    "svg",
    { class: `spark ${tone}`, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": said },
    line && s("path", { class: "area", d: `${line}L${WIDE} ${HIGH}L0 ${HIGH}Z` }),
    line && s("path", { class: "line", d: line }),
  );
}

const CHART_WIDE = 600;
const CHART_HIGH = 100;

/**
 * Lines over the same times, with a scale. `atMs`: their times; `lines`: [{name, tone, values}],
 * null: not known.
 */
export function chart({ title, said, atMs, lines }) {
  const most = niceMost(Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))));
  const [first, last] = [atMs[0], atMs.at(-1)];
  const x = (ms) => ((ms - first) / Math.max(1, last - first)) * CHART_WIDE;
  const y = (value) => CHART_HIGH - (value / most) * CHART_HIGH;
  const grid = [0, 0.5, 1].map((part) => s("path", { class: "grid", d: `M0 ${y(part * most)}H${CHART_WIDE}` }));
  const drawn = lines.map((line) => s("path", { class: `line ${line.tone}`, d: path(line.values, atMs, x, y) }));
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", null, h("span", null, title), lines.length > 1 && h("ul", { class: "legend" }, lines.map(legendOf))),
    h("p", { class: "scale", "aria-hidden": "true" }, [most, most / 2, 0].map((value) => h("span", null, short(value)))),
    s("svg", { viewBox: `0 0 ${CHART_WIDE} ${CHART_HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": said }, grid, drawn),
    h("p", { class: "times", "aria-hidden": "true" }, h("span", null, `${duration(Math.max(1000, last - first))} ago`), h("span", null, "now")),
  );
}

function legendOf({ name, tone, values }) {
  const now = values.findLast((value) => value !== null);
  return h("li", { key: name }, s("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: `fill ${tone}`, width: 10, height: 10 })), `${name} ${short(now)}`);
}

/** A line with a gap where a value is not known. */
function path(values, atMs, x, y) {
  let begun = false;
  return values
    .map((value, at) => {
      if (value === null) {
        begun = false;
        return "";
      }
      const word = begun ? "L" : "M";
      begun = true;
      return `${word}${x(atMs[at]).toFixed(1)} ${y(value).toFixed(1)}`;
    })
    .join("");
}

/** The end of a scale that people can divide: 1, 2 or 5 times a power of ten. */
export function niceMost(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => it >= most);
}

/** A colour for each member, however many there are. */
export function colourOf(at) {
  const hue = (174 + at * TURN) % 360;
  return `hsl(${hue.toFixed(0)} 58% ${LIGHT[Math.floor(at / 8) % LIGHT.length]})`;
}

/** A small square of a colour. */
export function swatch(colour) {
  return s("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { width: 10, height: 10, rx: 2, fill: colour }));
}

/** A ring, a part of it for each share. `parts`: {share (0 to 1), title, colour}. */
export function ring(parts, said, middle) {
  const radius = 42;
  const around = 2 * Math.PI * radius;
  let from = 0;
  const arcs = parts.map(({ share, title, colour }) => {
    const long = Math.max(0, share * around - (parts.length > 1 ? 1.5 : 0));
    const arc = s(
      "circle",
      {
        class: "arc",
        cx: 60,
        cy: 60,
        r: radius,
        stroke: colour,
        "stroke-dasharray": `${long.toFixed(2)} ${(around - long).toFixed(2)}`,
        "stroke-dashoffset": (-from * around).toFixed(2),
      },
      s("title", null, title),
    );
    from += share;
    return arc;
  });
  return s(
    "svg",
    { class: "ring", viewBox: "0 0 120 120", role: "img", "aria-label": said },
    s("circle", { class: "rest", cx: 60, cy: 60, r: radius }),
    s("g", { transform: "rotate(-90 60 60)" }, arcs),
    s("text", { x: 60, y: 58, class: "big" }, middle[0]),
    s("text", { x: 60, y: 74, class: "small" }, middle[1]),
  );
}

/** A bar beside a figure: a part of the largest. */
export function bar(share) {
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "rest", width: 100, height: 6 }),
    s("rect", { class: "part", width: Math.max(0, Math.min(100, share * 100)).toFixed(1), height: 6 }),
  );
}

/** A tile: a figure, its name, and its line. */
export function tile({ name, value, unit, note, series, tone }) {
  return h(
    "div",
    { class: `tile ${tone ?? ""}`, key: name },
    h("p", { class: "name" }, name),
    h("p", { class: "figure" }, value, unit && h("span", { class: "unit" }, ` ${unit}`)),
    note && h("p", { class: "note" }, note),
    series && sparkline(series, `${name} over the last minutes`, tone),
  );
}
