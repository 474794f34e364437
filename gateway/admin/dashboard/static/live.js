// The connection to the node: overviews by server-sent events, by polling where those fail, and
// the state of it all that the header shows.

import { ask } from "./rest.js";

const STALE_MS = 5_000; // older data is shown as old
const RETRY_MS = 2_000;
const STREAM_RETRY_MS = 10_000; // polling meanwhile

/** Phases: loading, live, polling, stale, unreachable, denied. */
export class Live {
  /** `received` gets each overview, `changed` is told of each change of the phase. */
  constructor(received, changed) {
    this.received = received;
    this.changed = changed;
    this.atMs = 0;
    this.phase = "loading";
    this.problem = "";
    this.source = null;
    this.timer = 0;
    this.streamAtMs = 0;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.resume());
    setInterval(() => this.judge(), 500);
    this.resume();
  }

  /** A page that nobody sees asks nothing. */
  resume() {
    this.close();
    if (document.visibilityState === "visible") this.listen();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  listen() {
    this.close();
    this.streamAtMs = Date.now();
    const source = new EventSource("/v1/events");
    this.source = source;
    let worked = false;
    source.addEventListener("overview", (event) => {
      worked = true;
      this.take(JSON.parse(event.data), "live");
    });
    source.onerror = () => {
      this.close();
      if (worked) this.listen(); // a stream has an end: the node looks at its viewer again
      else this.poll();
    };
  }

  /** Asks once: its answer tells a node that is away from one that refuses. */
  async poll() {
    try {
      this.take(await ask("GET", "/v1/overview"), "polling");
    } catch (problem) {
      this.problem = problem.message;
      const refused = problem.status === 401 || problem.status === 403;
      this.enter(refused ? "denied" : "unreachable");
    }
    if (this.source || document.visibilityState !== "visible") return;
    const due = this.phase !== "polling" || Date.now() - this.streamAtMs >= STREAM_RETRY_MS;
    this.timer = setTimeout(() => (due ? this.listen() : this.poll()), RETRY_MS);
  }

  take(overview, phase) {
    this.atMs = Date.now();
    this.problem = "";
    this.received(overview);
    this.enter(phase);
  }

  enter(phase) {
    const changed = phase !== this.phase;
    this.phase = phase;
    if (changed) this.changed();
  }

  get ageMs() {
    return this.atMs ? Date.now() - this.atMs : null;
  }

  judge() {
    const flowing = this.phase === "live" || this.phase === "polling";
    if (flowing && this.ageMs > STALE_MS) this.enter("stale");
  }
}
