// Denied requests, newest first.

import { h, table } from "./dom.js";
import { dateTime, duration } from "./format.js";
import { newestFirst } from "./newest_first.js";

const FILTERS = [["user", "User"], ["ip", "Address"], ["rule", "Rule"], ["subject", "Subject"]];

export const title = () => "Violations";

function list(violations) {
  if (!violations.length) return h("p", { class: "empty" }, "No recorded violation matches the filter.");
  return table("Newest first. Times are in your local time zone.", [
    { label: "When", cell: (row) => h("time", { datetime: row.requested_at }, dateTime(row.requested_at_ms)) },
    { label: "Subject", cell: (row) => (row.subject ? h("a", { class: "mono", href: `#/limited?${new URLSearchParams({ rule: row.rule ?? "", subject: row.subject })}` }, row.subject) : "–") },
    { label: "Rule", cell: (row) => (row.rule === null || row.rule === "ban" ? h("span", { class: "tag" }, row.rule ?? "–") : h("a", { href: `#/rules/${encodeURIComponent(row.rule)}` }, row.rule)) },
    { label: "Limit", cell: (row) => row.limit ?? "–" },
    { label: "Request", cell: (row) => [row.method, row.endpoint].filter(Boolean).join(" ") || "–" },
    { label: "Address", cell: (row) => row.ip_address ?? "–" },
    { label: "Cost", number: true, cell: (row) => row.cost },
    { label: "Retry after", number: true, cell: (row) => (row.retry_after_ms === null ? "–" : duration(row.retry_after_ms / 1000)) },
  ], violations);
}

export function show({ body, query }) {
  return newestFirst({ body, query, kind: "violations", filters: FILTERS, list });
}
