// Who was denied, newest first.

import { get } from "./api.js";
import { h, replaceContent, table } from "./dom.js";
import { dateTime, duration } from "./format.js";

const PAGE = 50;
const SINCE = [["", "any time"], ["900", "last 15 min"], ["3600", "last hour"], ["86400", "last 24 h"], ["604800", "last 7 days"]];
const FILTERS = [["user", "User"], ["ip", "Address"], ["rule", "Rule"], ["subject", "Subject"]];

export const title = () => "Violations";

function list(violations) {
  if (!violations.length) return h("p", { class: "empty" }, "No violation on record matches.");
  return table("Newest first. Times are those of this browser.", [
    { label: "When", cell: (row) => h("time", { datetime: row.requested_at }, dateTime(row.requested_at_ms)) },
    { label: "Subject", cell: (row) => (row.subject ? h("a", { class: "mono", href: `#/limited?${new URLSearchParams({ rule: row.rule ?? "", subject: row.subject })}` }, row.subject) : "–") },
    { label: "Rule", cell: (row) => (row.rule === null || row.rule === "ban" ? h("span", { class: "tag" }, row.rule ?? "–") : h("a", { href: `#/rules/${encodeURIComponent(row.rule)}` }, row.rule)) },
    { label: "Limit", cell: (row) => row.limit ?? "–" },
    { label: "Request", cell: (row) => [row.method, row.endpoint].filter(Boolean).join(" ") || "–" },
    { label: "Address", cell: (row) => row.ip_address ?? "–" },
    { label: "Cost", number: true, cell: (row) => row.cost },
    { label: "To wait", number: true, cell: (row) => (row.retry_after_ms === null ? "–" : duration(row.retry_after_ms / 1000)) },
  ], violations);
}

export function show({ body, query }) {
  const inputs = new Map(FILTERS.map(([name]) => [name, h("input", { id: `by-${name}`, autocomplete: "off", spellcheck: "false" })]));
  const since = h("select", { id: "by-since" }, SINCE.map(([value, label]) => h("option", { value }, label)));
  const found = h("div", { id: "violations" }, h("p", { class: "empty" }, "Asking…"));
  const newer = h("button", { type: "button", click: () => { places.pop(); load(); } }, "Newer");
  const older = h("button", { type: "button", click: () => { places.push(next); load(); } }, "Older");
  let places = [null];
  let next = null;
  let asked = new AbortController();
  for (const [name, input] of inputs) input.value = query.get(name) ?? "";
  since.value = query.get("since") ?? "";

  function given() {
    const chosen = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
    return Object.fromEntries(Object.entries({ ...chosen, since: since.value }).filter(([, value]) => value));
  }

  async function load() {
    asked.abort();
    asked = new AbortController();
    const filter = given();
    if (filter.since) filter.since = Math.floor(Date.now() / 1000) - Number(filter.since);
    try {
      const page = await get("violations", { ...filter, limit: PAGE, before: places.at(-1) }, asked.signal);
      next = page.next;
      replaceContent(found, list(page.violations));
      newer.disabled = places.length === 1;
      older.disabled = next === null;
    } catch (error) {
      if (error.name !== "AbortError") replaceContent(found, h("p", { class: "told bad" }, error.message));
    }
  }

  function apply(event) {
    event?.preventDefault();
    places = [null];
    const kept = new URLSearchParams(given()).toString();
    history.replaceState(null, "", kept ? `#/violations?${kept}` : "#/violations");
    load();
  }

  since.addEventListener("change", () => apply());
  body.append(h("section", { class: "panel stack" },
    h("form", { class: "filters", submit: apply },
      FILTERS.map(([name, label]) => h("div", { class: "field" }, h("label", { for: `by-${name}` }, label), inputs.get(name))),
      h("div", { class: "field" }, h("label", { for: "by-since" }, "Since"), since),
      h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Filter"),
        h("button", { type: "button", click: () => { for (const input of inputs.values()) input.value = ""; since.value = ""; apply(); } }, "Clear"))),
    found, h("div", { class: "row" }, newer, older)));
  load();
  return () => asked.abort();
}
