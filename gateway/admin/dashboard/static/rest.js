// Questions to the node's REST, and answers that a view uses again and again.

const ANSWER_MS_MAX = 10_000;
const FRESH_MS = 2_500; // an answer that is older is asked for again, unless its view says otherwise

/** A refusal of the node (RFC 9457), or `status` 0: no answer at all. */
export class Problem extends Error {
  constructor(status, title) {
    super(title);
    this.status = status;
  }
}

/** The JSON of an answer. Throws Problem. */
export async function ask(method, path, body, withinMs = ANSWER_MS_MAX) {
  const options = { method, credentials: "same-origin", signal: AbortSignal.timeout(withinMs) };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    throw new Problem(0, error.name === "TimeoutError" ? "the node does not answer" : "the node is not reachable");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, said.detail || said.title || answer.statusText);
  return said;
}

/** A path with parameters; those that are undefined are left out. */
export function at(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return `${path}?${new URLSearchParams(given)}`;
}

export function groupPath(group) {
  return `/v1/groups/${encodeURIComponent(group)}`;
}

/** Answers by path, kept fresh as long as the view on screen uses them. */
export class Answers {
  constructor(changed) {
    this.changed = changed;
    this.known = new Map();
    this.used = new Set();
  }

  /**
   * {data, problem}: `data` is the last one, also while a later question fails. An answer that is
   * older than `everyMs` is asked for again, one that takes longer than `withinMs` given up.
   */
  use(path, { everyMs = FRESH_MS, withinMs } = {}) {
    this.used.add(path);
    if (!this.known.has(path)) {
      this.known.set(path, { data: null, problem: null, atMs: 0, asking: false, everyMs, withinMs });
      this.refresh(path);
    }
    return this.known.get(path);
  }

  /** Before a view is drawn. */
  begin() {
    this.used.clear();
  }

  /** After it: answers that no view uses are forgotten. */
  end() {
    for (const path of this.known.keys()) if (!this.used.has(path)) this.known.delete(path);
  }

  /** Asks again for all that is used and not fresh. */
  tick() {
    for (const path of this.used) {
      const answer = this.known.get(path);
      if (answer && Date.now() - answer.atMs >= answer.everyMs) this.refresh(path);
    }
  }

  async refresh(path) {
    const answer = this.known.get(path);
    if (!answer || answer.asking) return;
    answer.asking = true;
    try {
      answer.data = await ask("GET", path, undefined, answer.withinMs);
      answer.problem = null;
    } catch (problem) {
      answer.problem = problem;
    }
    answer.atMs = Date.now();
    answer.asking = false;
    this.changed();
  }

  /** After a change: the values on the page may be old. */
  refreshAll() {
    for (const path of this.used) this.refresh(path);
  }
}
