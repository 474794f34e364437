// An address that no view has.

import { h } from "../dom.js";

export function drawLost(app, { path }) {
  return [
    h("h1", null, "No such view"),
    h("p", { role: "status" }, "The dashboard has nothing at ", h("span", { class: "name" }, path), ". Perhaps the link is cut off, or of another version."),
    h("p", null, h("a", { href: "#/" }, "To the overview")),
  ];
}
