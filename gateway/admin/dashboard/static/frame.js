// The surroundings of every view: the name, the ways, the state of the connection, the login.

import { h, s } from "./dom.js";
import { duration } from "./format.js";
import { VIEWS } from "./routes.js";
import { drawLogin, loggedIn } from "./views/login.js";

const PHASES = {
  loading: ["loading", "The first data is on its way."],
  live: ["live", "The node sends its figures every two seconds."],
  polling: ["polling", "Events do not come through; the page asks every two seconds."],
  stale: ["stale", "No data came for more than five seconds. The figures are old."],
  unreachable: ["unreachable", "The node does not answer. The page tries again all the time."],
  denied: ["login needed", "The node wants a token."],
};

export function frame(app, view, content) {
  const { phase } = app.live;
  const old = phase === "stale" || phase === "unreachable";
  return [
    h("header", { class: "top" }, brand(), ways(app, view), state(app), loggedIn(app)),
    old && banner(app),
    h(
      "main",
      { id: "main", tabindex: "-1", class: old ? "old" : "", "data-phase": phase },
      phase === "denied" ? drawLogin(app) : (content ?? []),
    ),
  ];
}

function brand() {
  return h(
    "a",
    { class: "brand", href: "#/" },
    s(
      "svg",
      { viewBox: "0 0 32 32", "aria-hidden": "true" },
      s("circle", { cx: 10, cy: 16, r: 5.5 }),
      s("path", { d: "M15.5 16H29M23 16v5M28 16v3.5" }),
    ),
    h("span", null, "Keyway"),
  );
}

function ways(app, view) {
  const here = VIEWS.filter(({ path, shown }) => path === view.path || !shown || shown(app));
  const links = here.map(({ path, title }) =>
    h(
      "li",
      null,
      h("a", { href: `#${path}`, "aria-current": view.path === path ? "page" : null }, title),
    ),
  );
  return h("nav", { "aria-label": "Views" }, h("ul", null, links));
}

function state(app) {
  const { phase, ageMs } = app.live;
  const [name, said] = PHASES[phase];
  const age = ageMs === null || phase === "denied" ? "" : ` · ${duration(Math.max(1000, ageMs))} old`;
  return h(
    "p",
    { class: `state ${phase}`, title: said, "data-phase": phase },
    h("span", { class: "dot", "aria-hidden": "true" }),
    name,
    phase === "live" ? "" : age,
  );
}

function banner(app) {
  const { phase, ageMs, problem } = app.live;
  const last = ageMs === null ? "No data came yet." : `The figures below are ${duration(ageMs)} old.`;
  return h(
    "p",
    { class: "banner", role: "alert" },
    h("strong", null, phase === "stale" ? "No news from the node. " : "The node is not reachable. "),
    last,
    problem && phase === "unreachable" ? ` (${problem})` : "",
  );
}
