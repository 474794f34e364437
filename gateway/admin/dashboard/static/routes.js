// Views by the part of the address behind #: /groups/NAME/keys, names quoted.

import { drawAudit } from "./views/audit.js";
import { drawClients } from "./views/clients.js";
import { drawGroup } from "./views/group.js";
import { drawGroups } from "./views/groups.js";
import { drawLinks } from "./views/links.js";
import { drawLost } from "./views/lost.js";
import { drawNodes, severalNodes } from "./views/nodes.js";
import { drawOverview } from "./views/overview.js";
import { drawTopics } from "./views/topics.js";

export const VIEWS = [
  { path: "/", title: "Overview", draw: drawOverview },
  { path: "/groups", title: "Groups", draw: drawGroups },
  { path: "/topics", title: "Topics", draw: drawTopics },
  { path: "/clients", title: "Clients", draw: drawClients },
  { path: "/nodes", title: "Nodes", draw: drawNodes, shown: severalNodes },
  { path: "/links", title: "Links", draw: drawLinks },
  { path: "/audit", title: "Audit", draw: drawAudit },
];

export const GROUP_TABS = [
  { tab: "", title: "Partitions" },
  { tab: "members", title: "Members" },
  { tab: "keys", title: "Keys" },
  { tab: "parked", title: "Parked" },
  { tab: "unreadable", title: "Unreadable" },
  { tab: "positions", title: "Positions" },
  { tab: "filters", title: "Key filters" },
  { tab: "settings", title: "Settings" },
];

const LOST = { path: null, title: "No such view", draw: drawLost };

/** The view of an address, with `parameters`; `path` of a view is null where no way leads to it. */
export function viewOf(hash) {
  const path = hash.replace(/^#/, "").replace(/\/+$/, "") || "/";
  const [, place, name, tab = "", ...more] = path.split("/");
  if (place === "groups" && name && more.length === 0 && GROUP_TABS.some((it) => it.tab === tab)) {
    const group = named(name);
    return { ...VIEWS[1], title: group, draw: drawGroup, parameters: { group, tab } };
  }
  const found = VIEWS.find((view) => view.path === path);
  return found ? { ...found, parameters: {} } : { ...LOST, parameters: { path: named(path) } };
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
