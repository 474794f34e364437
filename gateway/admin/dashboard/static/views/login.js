// The login with a token. The node keeps it in a cookie that no script can read.

import { h } from "../dom.js";
import { ask } from "../rest.js";

export function drawLogin(app) {
  const form = app.choice("login", () => ({ problem: "", busy: false }));
  return h(
    "section",
    { class: "panel login", "aria-labelledby": "login-title" },
    h("h1", { id: "login-title" }, "Log in"),
    h("p", { class: "soft" }, "This node shows its figures to those who have a token of its configuration."),
    h(
      "form",
      { onsubmit: (event) => logIn(app, form, event) },
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token",
        type: "password",
        name: "token",
        autocomplete: "current-password",
        required: true,
        "aria-describedby": form.problem ? "login-problem" : null,
      }),
      form.problem && h("p", { id: "login-problem", class: "problem", role: "alert" }, form.problem),
      h("button", { class: "primary", disabled: form.busy }, "Log in"),
    ),
  );
}

async function logIn(app, form, event) {
  event.preventDefault();
  const input = event.target.elements.token;
  form.busy = true;
  app.draw();
  try {
    await ask("POST", "/v1/login", { token: input.value });
    form.problem = "";
    input.value = "";
    app.refresh();
  } catch (problem) {
    form.problem = problem.message;
  }
  form.busy = false;
  app.draw();
}

/** The role of who has logged in, and the way out. */
export function loggedIn(app) {
  const { who } = app;
  if (!who?.name) return null;
  return h(
    "p",
    { class: "who" },
    `${who.name} · ${who.role} `,
    h("button", { class: "link", onclick: () => logOut(app) }, "log out"),
  );
}

async function logOut(app) {
  await ask("POST", "/v1/logout", {}).catch(() => null);
  app.who = null;
  app.refresh();
}

/** May the viewer give orders to nodes? The node also asks for all groups, and says so. */
export function mayOrder(app) {
  return !app.who?.role || app.who.role === "admin";
}

/** May the viewer change something? A node without tokens asks nobody. */
export function mayAct(app) {
  return !app.who?.role || app.who.role !== "viewer";
}
