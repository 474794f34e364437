// The node at a glance: its health, its traffic, and the groups that lag most.

import { bar, sparkline, tile } from "../charts.js";
import { h, named } from "../dom.js";
import { bytes, count, duration, short, whole } from "../format.js";
import { latelyOf, sum } from "../history.js";
import { groupAddress } from "../routes.js";
import { table } from "../table.js";

const WORST = 8;
const APIS = 6;

export function drawOverview(app) {
  const { overview } = app;
  if (!overview) return loading("Overview");
  return [
    h("h1", { class: "hidden" }, "Overview"),
    health(overview),
    tiles(app),
    overview.traffic ? h("div", { class: "two" }, worst(app), requests(app)) : worst(app),
  ];
}

export function loading(title) {
  return [
    h("h1", null, title),
    h("p", { class: "loading", role: "status" }, "The first data is on its way …"),
  ];
}

function health({ health: found, nodes }) {
  const warned = found.status === "up" && found.warnings.length > 0;
  const tone = warned ? "warn" : { up: "good", degraded: "warn", "not ready": "bad" }[found.status];
  const lines = [...found.reasons, ...found.warnings];
  const facts = [
    found.cluster_id && `cluster ${found.cluster_id}`,
    found.brokers !== undefined && count(found.brokers, "broker"),
    found.version,
    nodes.length > 1 && `figures of nodes ${nodes.join(", ")}`,
  ].filter(Boolean);
  return h(
    "section",
    { class: `panel health ${tone}`, "aria-labelledby": "health" },
    h("h2", { id: "health" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { "data-health": found.status }, healthText(found.status, warned))),
    lines.length > 0 && h("ul", { class: "reasons" }, lines.map((line) => h("li", null, line))),
    h("p", { class: "soft" }, facts.join(" · ")),
  );
}

function healthText(status, warned) {
  if (warned) return "Serving, with warnings";
  return { up: "All is well", degraded: "Serving, with troubles", "not ready": "Not serving" }[status];
}

function tiles(app) {
  const { history, overview } = app;
  const groups = overview.groups;
  const [brought, unit] = amount(history.now("in"));
  const [taken, unitOut] = amount(history.now("out"));
  const parked = history.now("parked");
  const timed = duration(history.quantile("produce", 0.99)).split(" ");
  return h(
    "section",
    { class: "tiles", "aria-label": "Figures of the node" },
    overview.traffic && [
      tile({ name: "From clients", value: brought, unit, series: history.of("in") }),
      tile({ name: "To clients", value: taken, unit: unitOut, series: history.of("out") }),
    ],
    tile({ name: "Records settled", value: short(rateOf(groups, "settled")), unit: "/s", note: `${short(rateOf(groups, "produced"))}/s came` }),
    overview.traffic && [
      tile({ name: "Produce, p99", value: timed[0], unit: timed[1], series: history.of("latency") }),
      tile({ name: "Connections", value: whole(overview.traffic.connections), series: history.of("connections") }),
    ],
    tile({ name: "Lag of all groups", value: short(sum(groups.map((it) => it.lag ?? 0))), unit: "records", series: latelyOf(groups) }),
    tile({ name: "In flight", value: short(history.now("inFlight")), unit: "records", series: history.of("inFlight") }),
    tile({
      name: "Parked",
      value: short(parked),
      unit: "records",
      note: parked > 0 ? `in ${count(groups.filter((it) => it.parked > 0).length, "group")}` : null,
      series: parked > 0 ? null : history.of("parked"),
      tone: parked > 0 ? "warn" : "",
    }),
  );
}

/** Records per second of all groups; null: of none is it known. */
function rateOf(groups, part) {
  const known = groups.map((it) => it.flow[part]).filter((rate) => rate !== null);
  return known.length > 0 ? Math.round(sum(known) * 10) / 10 : null;
}

function amount(perSecond) {
  if (perSecond === null) return ["–", "/s"];
  const [value, unit] = bytes(perSecond).split(" ");
  return [value, `${unit}/s`];
}

function worst(app) {
  const groups = [...app.overview.groups].sort((one, other) => (other.lag ?? -1) - (one.lag ?? -1));
  const columns = [
    { name: "Group", head: true, cell: groupName },
    { name: "Lately", wide: true, line: true, cell: lagLine },
    { name: "Lag", number: true, cell: (it) => short(it.lag) },
    { name: "Catches up", number: true, wide: true, cell: catchesUp },
    { name: "Oldest", number: true, wide: true, cell: (it) => secondsOf(it.lag_seconds) },
    { name: "Parked", number: true, cell: (it) => parkedCell(it) },
  ];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "worst" },
    h("h2", { id: "worst" }, "Groups that lag most"),
    table({
      caption: "Groups that lag most",
      columns,
      rows: groups.slice(0, WORST),
      keyOf: (it) => it.group,
      empty: "No group has been here yet. A share consumer that joins makes one.",
    }),
    groups.length > WORST && h("p", null, h("a", { href: "#/groups" }, `all ${whole(groups.length)} groups`)),
  );
}

/** The age of the oldest unsettled record. */
export function secondsOf(seconds) {
  return seconds == null ? "–" : seconds === 0 ? "0 s" : duration(seconds * 1000);
}

/** The lag of the last 15 minutes, and its largest in words. */
export function lagLine({ group, lately, growing }) {
  const most = Math.max(0, ...lately.map((lag) => lag ?? 0));
  return sparkline(lately, `lag of ${group} in the last 15 minutes, ${short(most)} at most${growing ? ", growing" : ""}`, growing ? "warn" : "");
}

/** When the lag is gone, with the rates of the last minute. */
export function catchesUp({ lag, growing, catches_up_s: seconds, flow }) {
  if (growing) return h("span", { class: "warn", title: `${short(flow.produced)}/s produced, ${short(flow.settled)}/s settled` }, "grows ↑");
  if (!lag || seconds === null) return "–";
  return `in ${duration(Math.max(1_000, seconds * 1_000))}`;
}

/** A link to the group; on a narrow screen with its state, which has no column there. */
export function groupName(group) {
  return [
    h("a", { href: groupAddress(group.group), class: "name" }, named(group.group)),
    h("span", { class: "narrow" }, statePill(group)),
  ];
}

export function statePill(group) {
  const tone = group.stuck > 0 || group.held > 0 ? "bad" : group.waiting > 0 || group.stopped ? "warn" : group.state === "Stable" ? "good" : "";
  return h("span", { class: `pill ${tone}` }, group.state);
}

export function parkedCell(group) {
  if (!group.parked) return whole(group.parked);
  return h("a", { href: groupAddress(group.group, "parked"), class: "warn" }, short(group.parked));
}

function requests(app) {
  const rates = Object.keys(app.overview.traffic.requests)
    .map((api) => ({ api, rate: app.history.rate((it) => it.traffic.requests[api] ?? 0) }))
    .sort((one, other) => (other.rate ?? 0) - (one.rate ?? 0))
    .slice(0, APIS);
  const most = Math.max(sum(rates.map((it) => it.rate ?? 0)), 1e-9);
  const columns = [
    { name: "API", head: true, cell: (it) => it.api.replaceAll("_", " ") },
    { name: "Share", wide: true, line: true, cell: (it) => bar((it.rate ?? 0) / most) },
    { name: "Per second", number: true, cell: (it) => short(it.rate && Math.round(it.rate * 10) / 10) },
    { name: "Work, p99", number: true, cell: (it) => duration(app.history.quantile(it.api, 0.99)) },
    { name: "Wait, p50", number: true, wide: true, cell: (it) => duration(app.history.quantile(it.api, 0.5, "waited")) },
  ];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "requests" },
    h("h2", { id: "requests" }, "Requests"),
    table({ caption: "Requests of clients by API", columns, rows: rates, keyOf: (it) => it.api, empty: "No client has asked anything yet." }),
  );
}
