// Whether the limiter itself is well: rules, store, record, nodes.

import { get, poll } from "./api.js";
import { h, refresh, replaceContent, table } from "./dom.js";
import { live } from "./live_traffic.js";
import { compact, count, dateTime, duration, sentence } from "./format.js";

export const title = () => "Health";

// A panel with a verdict: `kind` is good, warn or bad.
function card(name, kind, verdict, facts, hint) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined);
  return h("section", { class: "panel stack" },
    h("div", { class: "row spread" }, h("h2", null, name), h("span", { class: `pill ${kind}` }, h("span", { class: "dot" }), verdict)),
    h("dl", null, shown.map(([label, value]) => [h("dt", null, label), h("dd", null, value)])), hint ? h("p", { class: "note" }, hint) : null);
}

function rulesCard(rules) {
  const [kind, verdict] = rules.error ? ["bad", "not the newest"] : rules.connected === false ? ["warn", "database unavailable"] : ["good", "active"];
  return card("Rules", kind, verdict, [
    ["Source", rules.source], ["From", h("span", { class: "mono" }, rules.from)], ["Version", rules.source === "file" ? null : count(rules.version)],
    ["Rules", count(rules.count)], ["Overrides", count(rules.overrides)], ["Bans", count(rules.bans)],
    ["Loaded", rules.loaded_at && dateTime(rules.loaded_at)], ["Error", rules.error && h("span", { class: "bad" }, rules.error)],
  ], rules.connected === false ? "The active rules stay; edits fail until the database is available." : null);
}

function warningsPanel(warnings) {
  if (!warnings?.length) return null;
  return h("section", { class: "panel stack", id: "warnings" }, h("h2", null, "Warnings"),
    warnings.map(({ detail }) => h("p", { class: "told bad" }, sentence(detail))));
}

function storeCard(store) {
  const failed = store.unknown + store.refused + store.not_asked;
  const [kind, verdict] = store.is_open ? ["bad", "breaker open"] : store.is_away ? ["bad", "does not answer"] : store.is_too_far ? ["warn", "too far away"] : store.is_failing ? ["warn", "fails at times"] : failed ? ["warn", "has failed"] : ["good", "answers"];
  const is_redis = store.kind === "redis";
  return card("Store", kind, verdict, [
    ["Kind", store.kind], ["Which", h("span", { class: "mono" }, store.text)],
    ["Circuit breaker", is_redis ? (store.is_open ? "open: Redis is not called, rules follow on_store_failure" : "closed") : "none: the store is in this process"],
    ["Round trip", store.round_trip_us === null ? null : `${store.round_trip_us / 1000} ms; a decision may take ${store.deadline_us / 1000} ms`],
    ["Answered", is_redis ? count(store.answered) : null], ["Result unknown", is_redis ? count(store.unknown) : null],
    ["Refused", is_redis ? count(store.refused) : null], ["Not asked", is_redis ? count(store.not_asked) : null],
    ...leaseRows(store.leases),
  ], is_redis && failed ? "Counts are since the start: what failed was decided by each rule's on_store_failure." : null);
}

function leaseRows(leases) {
  if (!leases || !leases.asks) return [];
  return [
    ["Leased subjects", count(leases.subjects)], ["Prepaid tokens held", count(leases.held)],
    ["Prepaid and spent", `${count(leases.spent)} of ${count(leases.granted)}, by ${count(leases.asks)} calls`],
    ["Returned", count(leases.returned)], ["Expired", count(leases.lost)], ["Denied without a call", count(leases.cached_denials)],
  ];
}

function auditCard(audit) {
  if (!audit) return card("Record of violations", "warn", "off", [], "Violations are not recorded: there is no database, or --audit-rate is 0.");
  const [kind, verdict] = audit.dropped ? ["warn", "incomplete"] : ["good", audit.sampled_out ? "sampled" : "complete"];
  return card("Record of violations", kind, verdict, [
    ["Denied", count(audit.denied)], ["Written", count(audit.written)], ["Waiting in the queue", count(audit.waiting)],
    ["Not recorded (sampled)", count(audit.sampled_out)], ["Dropped", h("span", { class: audit.dropped ? "bad" : "" }, count(audit.dropped))],
  ], audit.dropped ? "Some violations were dropped: the queue was full, or the database was unavailable for too long."
    : audit.sampled_out ? "At most --audit-rate violations per rule and second are recorded; the rest are only counted." : null);
}

function nodesPanel({ nodes, hint }) {
  return h("section", { class: "panel stack" }, h("h2", null, "Nodes"),
    table(nodes.length === 1 ? "One node is known." : `${count(nodes.length)} nodes are known.`, [
      { label: "Node", cell: (row) => [h("span", { class: "mono" }, row.node), row.is_self ? h("span", { class: "tag" }, "this one") : null].filter(Boolean).flatMap((part) => [part, " "]) },
      { label: "State", cell: (row) => h("span", { class: row.ready ? "good" : "bad" }, row.ready ? "ready" : "not ready") },
      { label: "Version", cell: (row) => row.version },
      { label: "Up for", cell: (row) => duration(row.uptime_s) },
      { label: "Store", cell: (row) => row.store },
      { label: "Rules version", number: true, cell: (row) => (row.rules_version ? count(row.rules_version) : "–") },
      { label: "Requests/s", number: true, cell: (row) => compact(row.requests_per_s) },
      { label: "Denied/s", number: true, cell: (row) => compact(row.limited_per_s) },
      { label: "Seen", number: true, cell: (row) => (row.is_self ? "now" : `${duration(row.seen_s_ago)} ago`) },
    ], nodes), hint ? h("p", { class: "note" }, sentence(hint)) : null);
}

export function show({ body }) {
  const cards = h("div", { class: "masonry", id: "cards" });
  const nodes = h("div", { id: "nodes" });
  body.append(cards, nodes);
  let status = null;

  function draw() {
    if (!status) return;
    const now = live().status;
    const is_ready = now ? now.ready : true;
    refresh(cards, warningsPanel(status.warnings),
      card("This node", is_ready ? "good" : "bad", is_ready ? "ready" : "not ready",
        [["Node", h("span", { class: "mono" }, status.node)], ["Version", status.version], ["Up for", duration(status.uptime_s)]]),
      rulesCard(status.rules), storeCard(status.store), auditCard(status.audit));
  }

  const fail = (box) => (error) => replaceContent(box, h("p", { class: "told bad" }, error.message));
  const stops = [
    poll(2_000, async (signal) => { status = await get("status", null, signal); draw(); }, fail(cards)),
    poll(2_000, async (signal) => refresh(nodes, nodesPanel(await get("nodes", null, signal))), fail(nodes)),
  ];
  return () => stops.forEach((stop) => stop());
}
