// The page: its parts wired together, the route in the address, and drawing.

import { h, say, update } from "./dom.js";
import { frame } from "./frame.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { ask, Answers } from "./rest.js";
import { viewOf } from "./routes.js";

const app = {
  overview: null,
  who: null,
  history: new History(),
  choices: new Map(), // of the views: filters, sorting, chosen records
  draw: () => drawSoon(),
  goTo: (path) => location.assign(`#${path}`),
};
app.answers = new Answers(drawSoon);
app.live = new Live(received, phaseChanged);

/** A view's own state, made once by `begin`. */
app.choice = (name, begin) => {
  if (!app.choices.has(name)) app.choices.set(name, begin());
  return app.choices.get(name);
};

/** After a change, or a new login. */
app.refresh = () => {
  app.answers.refreshAll();
  app.live.resume();
  learnWho();
};

function received(overview) {
  app.overview = overview;
  app.history.add(overview);
  app.answers.tick();
  drawSoon();
}

function phaseChanged() {
  const { phase } = app.live;
  if (phase !== "loading") say(`Connection: ${phase}`);
  if (phase === "live" || phase === "polling") app.answers.refreshAll();
  drawSoon();
}

/** The caller: {name (null: the node has no tokens), role, groups, keys}. */
async function learnWho() {
  app.who = await ask("GET", "/v1/login").catch(() => null);
  drawSoon();
}

let drawing = false;

function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
  });
}

function draw() {
  const view = viewOf(location.hash);
  app.answers.begin();
  const content = app.live.phase === "denied" ? null : drawn(view);
  update(document.getElementById("app"), h("div", null, frame(app, view, content)));
  app.answers.end();
  showCurrentTab();
  document.title = `${view.title} · Keyway`;
}

let tabShown = "";

/** A strip of tabs that is longer than the screen shows the one that is chosen, once. */
function showCurrentTab() {
  const chosen = document.querySelector(".tabs [aria-current]");
  const name = chosen ? chosen.getAttribute("href") : "";
  if (name === tabShown) return;
  tabShown = name;
  if (!chosen) return;
  const strip = chosen.closest(".tabs");
  const middle = chosen.offsetLeft - strip.offsetLeft + chosen.offsetWidth / 2;
  strip.scrollLeft = middle - strip.clientWidth / 2;
}

/** A view with a fault says so: old figures under a header that says "live" would deceive. */
function drawn(view) {
  try {
    return view.draw(app, view.parameters);
  } catch (error) {
    console.error(error);
    return h("p", { class: "problem", role: "alert" }, `This view cannot be shown: ${error.message}.`);
  }
}

addEventListener("hashchange", () => {
  draw();
  scrollTo(0, 0);
  document.getElementById("main").focus({ preventScroll: true });
});
setInterval(() => {
  // Ages go on while no data comes. Not with a frame: a browser whose graphics hang sends none.
  if (document.visibilityState === "visible") draw();
}, 1_000);
app.live.start();
learnWho();
draw();
