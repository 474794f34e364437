// Numbers, bytes, durations and names as people read them.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const NONE = "–";

/** 1,234,567 */
export function whole(value) {
  return value === null || value === undefined ? NONE : WHOLE.format(value);
}

/** 1.23 M; up to four digits are shown whole. */
export function short(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return `${digits(value / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : WHOLE.format(value);
}

/** 12.3 MB */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** 340 ms, 12 s, 3 min, 2 h, 4 d */
export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const units = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];
  const [size, unit] = units.find(([least]) => ms >= least);
  const value = ms / size;
  return `${value < 10 && unit !== "s" ? value.toFixed(1) : Math.floor(value)} ${unit}`;
}

export function percent(share) {
  return share === null || share === undefined ? NONE : `${(share * 100).toFixed(1)} %`;
}

/** "1 record", "2 records" */
export function count(value, noun) {
  return `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** A list in words: "a, b and 3 more". */
export function some(names, most) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${whole(names.length - most)} more`;
}
