// The connection to the node: overviews by server-sent events, by polling where those fail, and
// the state of it all that the header shows.

import { ask } from "./rest.js";

const STALE_MS = 5_000; // older data is shown as old
const SILENT_MS = 3_000; // a stream that says nothing at first: a proxy holds the events back
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
    this.heard = false; // from the present stream
    this.polling = false;
    this.turn = 0; // the answer to an earlier question counts no more
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
    this.stopPolling();
    this.drop();
  }

  stopPolling() {
    clearTimeout(this.timer);
    this.polling = false;
    this.turn += 1;
  }

  /** Ends the stream. A late event of it would be old. */
  drop() {
    this.source?.close();
    this.source = null;
    this.heard = false;
  }

  /** Opens a stream; polling goes on until its first event. */
  listen() {
    this.drop();
    this.streamAtMs = Date.now();
    const source = new EventSource("/v1/events");
    this.source = source;
    source.addEventListener("overview", (event) => {
      this.heard = true;
      this.stopPolling();
      this.take(JSON.parse(event.data), "live");
    });
    source.onerror = () => {
      const worked = this.heard;
      this.drop();
      if (worked) this.listen(); // a stream has an end: the node looks at its viewer again
      else if (!this.polling) this.poll();
    };
  }

  /** Asks once, and again: the answer tells a node that is away from one that refuses. */
  async poll() {
    clearTimeout(this.timer);
    this.polling = true;
    this.turn += 1;
    const { turn } = this;
    let overview = null;
    let problem = null;
    try {
      overview = await ask("GET", "/v1/overview");
    } catch (error) {
      problem = error;
    }
    if (turn !== this.turn) return;
    if (overview) this.take(overview, "polling");
    else this.fail(problem);
    const due = this.phase !== "polling" || Date.now() - this.streamAtMs >= STREAM_RETRY_MS;
    this.timer = setTimeout(() => {
      if (due && !this.source) this.listen();
      this.poll();
    }, RETRY_MS);
  }

  take(overview, phase) {
    this.atMs = Date.now();
    this.problem = "";
    this.received(overview);
    this.enter(phase);
  }

  fail({ message, status }) {
    this.problem = message;
    this.enter(status === 401 || status === 403 ? "denied" : "unreachable");
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
    if (!this.source) return;
    const silentMs = Date.now() - (this.heard ? this.atMs : this.streamAtMs);
    if (silentMs < (this.heard ? STALE_MS : SILENT_MS)) return;
    this.drop();
    if (!this.polling) this.poll();
  }
}
