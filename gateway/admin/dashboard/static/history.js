// The last minutes of the overview's figures, for rates and sparklines. They begin with the page.

const SAMPLES_MAX = 150; // five minutes

const COUNTERS = {
  in: (it) => trafficOf(it).bytes_from_clients,
  out: (it) => trafficOf(it).bytes_to_clients,
  requests: (it) => sum(Object.values(trafficOf(it).requests)),
};
const GAUGES = {
  connections: (it) => trafficOf(it).connections,
  inFlight: (it) => sum(it.groups.map((group) => group.in_flight)),
  parked: (it) => sum(it.groups.map((group) => group.parked ?? 0)),
  members: (it) => sum(it.groups.map((group) => group.members)),
};

const NO_TRAFFIC = { bytes_from_clients: 0, bytes_to_clients: 0, connections: 0, requests: {}, answered: {}, waited: {}, bounds_ms: [] };

/** A token for some groups does not see the traffic, which is that of all clients. */
function trafficOf(overview) {
  return overview.traffic ?? NO_TRAFFIC;
}

const LATENCY_SAMPLES = 16; // latency is that of the last half minute

export class History {
  constructor() {
    this.last = null;
    this.before = null;
    this.series = new Map();
    this.answered = []; // counts by API and time, of the last overviews
  }

  /** A counter that went back, or other nodes than before: rates begin anew. */
  add(overview) {
    const before = this.last;
    this.last = overview;
    if (before && overview.at_ms <= before.at_ms) return;
    const others = before && String(overview.nodes) !== String(before.nodes);
    const restarted = others || (before && COUNTERS.in(overview) < COUNTERS.in(before));
    this.before = restarted ? null : before;
    if (restarted) this.answered = [];
    const { answered, waited } = trafficOf(overview);
    this.answered.push({ answered, waited });
    if (this.answered.length > LATENCY_SAMPLES) this.answered.shift();
    for (const [name, of] of Object.entries(GAUGES)) this.push(name, of(overview));
    if (!this.before) return;
    for (const [name, of] of Object.entries(COUNTERS)) this.push(name, this.rate(of));
    this.push("latency", this.quantile("produce", 0.99) ?? 0);
  }

  /**
   * The time in ms within which a share of the requests of an API was answered, interpolated
   * between the bounds of the node's counts; null: none was asked. `part`: that of the work
   * ("answered"), or of the wait for records ("waited").
   */
  quantile(api, share, part = "answered") {
    const now = this.answered.at(-1)?.[part][api];
    if (!now || this.answered.length < 2) return null;
    const then = this.answered[0][part][api] ?? [];
    const counts = now.map((count, at) => count - (then[at] ?? 0));
    const wanted = sum(counts) * share;
    const bounds = trafficOf(this.last).bounds_ms;
    let passed = 0;
    for (const [at, count] of counts.entries()) {
      if (count > 0 && passed + count >= wanted) {
        const from = at === 0 ? 0 : bounds[at - 1];
        const to = bounds[at] ?? from;
        return from + ((to - from) * (wanted - passed)) / count;
      }
      passed += count;
    }
    return null;
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

/** The lag of all groups over the last 15 minutes. */
export function latelyOf(groups) {
  const long = Math.max(0, ...groups.map((group) => group.lately.length));
  return Array.from({ length: long }, (_, at) => sum(groups.map((group) => group.lately.at(at - long) ?? 0)));
}

export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
