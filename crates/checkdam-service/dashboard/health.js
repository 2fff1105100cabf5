// Health of this node: rules, store, audit log, nodes.

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
  const [kind, verdict] = rules.error ? ["bad", "outdated"] : rules.connected === false ? ["warn", "database unavailable"] : ["good", "active"];
  return card("Rules", kind, verdict, [
    ["Source", rules.source], ["Location", h("span", { class: "mono" }, rules.from)], ["Version", rules.source === "file" ? null : count(rules.version)],
    ["Rules", count(rules.count)], ["Overrides", count(rules.overrides)], ["Bans", count(rules.bans)],
    ["Loaded", rules.loaded_at && dateTime(rules.loaded_at)], ["Error", rules.error && h("span", { class: "bad" }, rules.error)],
  ], rules.connected === false ? "The active rules stay in effect; edits fail until the database is available again." : null);
}

function warningsPanel(warnings) {
  if (!warnings?.length) return null;
  return h("section", { class: "panel stack", id: "warnings" }, h("h2", null, "Warnings"),
    warnings.map(({ detail }) => h("p", { class: "message bad" }, sentence(detail))));
}

function storeCard(store) {
  const failed = store.unknown + store.refused + store.not_asked;
  const [kind, verdict] = store.is_open ? ["bad", "circuit breaker open"] : store.is_away ? ["bad", "unreachable"] : store.is_too_far ? ["warn", "too distant for its deadline"] : store.is_failing ? ["warn", "fails intermittently"] : failed ? ["warn", "has had failures"] : ["good", "available"];
  const is_redis = store.kind === "redis";
  return card("Store", kind, verdict, [
    ["Kind", store.kind], ["Address", h("span", { class: "mono" }, store.text)],
    ["Circuit breaker", is_redis ? (store.is_open ? "open: Redis is not called, rules follow on_store_failure" : "closed") : "none: the store is in this process"],
    ["Round trip", store.round_trip_us === null ? null : `${store.round_trip_us / 1000} ms (deadline of a decision: ${store.deadline_us / 1000} ms)`],
    ["Answered", is_redis ? count(store.answered) : null], ["Result unknown", is_redis ? count(store.unknown) : null],
    ["Rejected by Redis", is_redis ? count(store.refused) : null], ["Not sent to Redis", is_redis ? count(store.not_asked) : null],
    ...leaseRows(store.leases),
  ], is_redis && failed ? "Counts are since this node started. Requests that failed were decided by each rule's on_store_failure." : null);
}

function leaseRows(leases) {
  if (!leases || !leases.asks) return [];
  return [
    ["Leased subjects", count(leases.subjects)], ["Prepaid tokens held", count(leases.held)],
    ["Prepaid tokens spent", `${count(leases.spent)} of ${count(leases.granted)}, in ${count(leases.asks)} calls to Redis`],
    ["Returned", count(leases.returned)], ["Expired", count(leases.lost)], ["Denied without calling Redis", count(leases.cached_denials)],
  ];
}

function auditCard(audit) {
  if (!audit) return card("Audit log", "warn", "off", [], "Violations are not recorded: there is no database, or --audit-rate is 0.");
  const [kind, verdict] = audit.dropped ? ["warn", "incomplete"] : ["good", audit.sampled_out ? "sampled" : "complete"];
  return card("Audit log", kind, verdict, [
    ["Denied", count(audit.denied)], ["Written", count(audit.written)], ["Waiting in the queue", count(audit.waiting)],
    ["Not recorded (sampled)", count(audit.sampled_out)], ["Dropped", h("span", { class: audit.dropped ? "bad" : "" }, count(audit.dropped))],
  ], audit.dropped ? "Some violations were dropped: the queue was full, or the database was unavailable for too long."
    : audit.sampled_out ? "At most --audit-rate violations per rule and second are recorded; the rest are only counted." : null);
}

function tlsCard(listeners) {
  if (!listeners?.length) return null;
  const soon = 14;
  const is_bad = ({ days_left, error }) => error || (days_left !== null && days_left < 0);
  const is_soon = ({ days_left }) => days_left !== null && days_left <= soon;
  const [kind, verdict] = listeners.some(is_bad) ? ["bad", "certificate expired or unreadable"] : listeners.some(is_soon) ? ["warn", "expires soon"] : ["good", "valid"];
  const until = ({ days_left, expires_at }) => (days_left === null ? "unknown" : `${dateTime(expires_at)}, ${days_left < 0 ? "expired" : `${count(days_left)} days left`}`);
  return card("TLS", kind, verdict, listeners.flatMap((tls) => [
    [`Certificate of ${tls.listener}`, h("span", { class: "mono" }, tls.certificate)],
    ["Expires", h("span", { class: is_bad(tls) ? "bad" : "" }, until(tls))], ["Client certificates", tls.verifies_clients ? "required" : "not required"],
    ["Failed handshakes", count(tls.handshake_failures)], ["Error", tls.error && h("span", { class: "bad" }, tls.error)],
  ]));
}

function nodesPanel({ nodes, hint }) {
  return h("section", { class: "panel stack" }, h("h2", null, "Nodes"),
    table(nodes.length === 1 ? "One node is known." : `${count(nodes.length)} nodes are known.`, [
      { label: "Node", cell: (row) => [h("span", { class: "mono" }, row.node), row.is_self ? h("span", { class: "tag" }, "this node") : null].filter(Boolean).flatMap((part) => [part, " "]) },
      { label: "State", cell: (row) => h("span", { class: row.ready ? "good" : "bad" }, row.ready ? "ready" : "not ready") },
      { label: "Version", cell: (row) => row.version },
      { label: "Uptime", cell: (row) => duration(row.uptime_s) },
      { label: "Store", cell: (row) => row.store },
      { label: "Rules version", number: true, cell: (row) => (row.rules_version ? count(row.rules_version) : "–") },
      { label: "Requests/s", number: true, cell: (row) => compact(row.requests_per_s) },
      { label: "Denied/s", number: true, cell: (row) => compact(row.limited_per_s) },
      { label: "Last seen", number: true, cell: (row) => (row.is_self ? "now" : `${duration(row.seen_s_ago)} ago`) },
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
        [["Node", h("span", { class: "mono" }, status.node)], ["Version", status.version], ["Uptime", duration(status.uptime_s)]]),
      rulesCard(status.rules), storeCard(status.store), auditCard(status.audit), tlsCard(status.tls));
  }

  const fail = (box) => (error) => replaceContent(box, h("p", { class: "message bad" }, error.message));
  const stops = [
    poll(2_000, async (signal) => { status = await get("status", null, signal); draw(); }, fail(cards)),
    poll(2_000, async (signal) => refresh(nodes, nodesPanel(await get("nodes", null, signal))), fail(nodes)),
  ];
  return () => stops.forEach((stop) => stop());
}
