// Drawings in SVG: sparklines, the ring of a group's members, bars. Each has its meaning as text.

import { h, s } from "./dom.js";

const COLOURS = 8; // of members; more of them use the same again

/** The line of the last values, from zero to their largest. */
export function sparkline(values, said) {
  const width = 120;
  const height = 28;
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)} ${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  return s(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": said },
    line && s("path", { class: "area", d: `${line}L${width} ${height}L0 ${height}Z` }),
    line && s("path", { class: "line", d: line }),
  );
}

/** The class that gives a member its colour. */
export function colourOf(at) {
  return `c${at % COLOURS}`;
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
        class: `arc ${colour}`,
        cx: 60,
        cy: 60,
        r: radius,
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
    series && sparkline(series, `${name} over the last minutes`),
  );
}
