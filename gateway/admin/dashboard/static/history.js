// The last minutes of the overview's figures, for rates and sparklines. They begin with the page.

const SAMPLES_MAX = 150; // five minutes

const COUNTERS = {
  in: (it) => it.traffic.bytes_from_clients,
  out: (it) => it.traffic.bytes_to_clients,
  requests: (it) => sum(Object.values(it.traffic.requests)),
};
const GAUGES = {
  connections: (it) => it.traffic.connections,
  lag: (it) => sum(it.groups.map((group) => group.lag ?? 0)),
  inFlight: (it) => sum(it.groups.map((group) => group.in_flight)),
  parked: (it) => sum(it.groups.map((group) => group.parked)),
  members: (it) => sum(it.groups.map((group) => group.members)),
};

export class History {
  constructor() {
    this.last = null;
    this.before = null;
    this.series = new Map();
  }

  /** A counter that went back means a new node: its rates begin anew. */
  add(overview) {
    const before = this.last;
    this.last = overview;
    if (before && overview.at_ms <= before.at_ms) return;
    const restarted = before && COUNTERS.in(overview) < COUNTERS.in(before);
    this.before = restarted ? null : before;
    for (const [name, of] of Object.entries(GAUGES)) this.push(name, of(overview));
    for (const group of overview.groups) this.push(`lag of ${group.group}`, group.lag ?? 0);
    if (!this.before) return;
    for (const [name, of] of Object.entries(COUNTERS)) this.push(name, this.rate(of));
  }

  /** Per second, between the last two overviews; null: not known yet. */
  rate(of) {
    if (!this.before) return null;
    const seconds = (this.last.at_ms - this.before.at_ms) / 1000;
    return Math.max(0, of(this.last) - of(this.before)) / seconds;
  }

  push(name, value) {
    const samples = this.series.get(name) ?? [];
    samples.push(value);
    if (samples.length > SAMPLES_MAX) samples.shift();
    this.series.set(name, samples);
  }

  of(name) {
    return this.series.get(name) ?? [];
  }

  now(name) {
    return this.of(name).at(-1) ?? null;
  }
}

export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
