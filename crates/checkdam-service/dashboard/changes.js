// The change log: who edited rules, overrides and bans, newest first.

import { h, table } from "./dom.js";
import { dateTime } from "./format.js";
import { newestFirst } from "./newest_first.js";
import { rulebookTabs } from "./paged_list.js";

const FILTERS = [["actor", "Actor"], ["name", "Rule"], ["subject", "Subject"]];

export const title = () => "Changes";

// The changed fields of an item, or the number of items of an import.
function difference({ before, after }) {
  if (before && after) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name])).join(", ");
  }
  return ["added", "changed", "removed"].filter((name) => after?.[name] > 0).map((name) => `${after[name]} ${name}`).join(", ");
}

function item(label, value) {
  return value ? [h("p", { class: "note" }, label), h("pre", { class: "mono" }, JSON.stringify(value, null, 2))] : [];
}

function details(change) {
  return h("details", null, h("summary", null, difference(change) || "Show"), item("Before", change.before), item("After", change.after));
}

function list(changes) {
  if (!changes.length) return h("p", { class: "empty" }, "No recorded edit matches the filter.");
  return table("Newest first. Edits that other programs made in SQL are not recorded.", [
    { label: "When", cell: (row) => h("time", { datetime: row.changed_at }, dateTime(Date.parse(row.changed_at))) },
    { label: "Actor", cell: (row) => row.actor },
    { label: "Action", cell: (row) => `${row.action} ${row.kind}` },
    { label: "Rule", cell: (row) => (row.name ? h("a", { href: `#/rules/${encodeURIComponent(row.name)}` }, row.name) : "–") },
    { label: "Subject", cell: (row) => (row.subject ? h("span", { class: "mono" }, row.subject) : "–") },
    { label: "Changed", cell: details },
  ], changes);
}

export function show({ body, query }) {
  body.append(h("div", null, rulebookTabs("changes")));
  return newestFirst({ body, query, kind: "changes", filters: FILTERS, list });
}
