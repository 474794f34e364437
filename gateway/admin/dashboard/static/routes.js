// Views by the part of the address behind #: /groups/NAME/keys, names quoted.

import { drawGroup } from "./views/group.js";
import { drawGroups } from "./views/groups.js";
import { drawLinks } from "./views/links.js";
import { drawOverview } from "./views/overview.js";
import { drawTopics } from "./views/topics.js";

export const VIEWS = [
  { path: "/", title: "Overview", draw: drawOverview },
  { path: "/groups", title: "Groups", draw: drawGroups },
  { path: "/topics", title: "Topics", draw: drawTopics },
  { path: "/links", title: "Links", draw: drawLinks },
];

export const GROUP_TABS = [
  { tab: "", title: "Partitions" },
  { tab: "members", title: "Members" },
  { tab: "keys", title: "Keys" },
  { tab: "parked", title: "Parked" },
  { tab: "unreadable", title: "Unreadable" },
  { tab: "positions", title: "Positions" },
  { tab: "filters", title: "Key filters" },
];

/** The view of an address, with `parameters`; an address that no view has leads to the overview. */
export function viewOf(hash) {
  const path = hash.replace(/^#/, "") || "/";
  const [, place, name, tab] = path.split("/");
  if (place === "groups" && name) {
    const group = named(name);
    return { ...VIEWS[1], title: group, draw: drawGroup, parameters: { group, tab: tab ?? "" } };
  }
  const found = VIEWS.find((view) => view.path === path) ?? VIEWS[0];
  return { ...found, parameters: {} };
}

function named(quoted) {
  try {
    return decodeURIComponent(quoted);
  } catch {
    return quoted;
  }
}

export function groupAddress(group, tab = "") {
  return `#/groups/${encodeURIComponent(group)}${tab && `/${tab}`}`;
}
