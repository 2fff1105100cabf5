// A list that is newest first, filtered and shown a page at a time: violations and
// changes.

import { get } from "./api.js";
import { h, replaceContent } from "./dom.js";

const PAGE = 50;
const SINCE = [["", "any time"], ["900", "last 15 min"], ["3600", "last hour"], ["86400", "last 24 h"], ["604800", "last 7 days"]];

// `kind` is the path of the admin API and the name of its list, `filters` are names and
// labels of its parameters, and `list(rows)` draws a page. Returns a function that stops it.
export function newestFirst({ body, query, kind, filters, list }) {
  const inputs = new Map(filters.map(([name]) => [name, h("input", { id: `by-${name}`, autocomplete: "off", spellcheck: "false" })]));
  const since = h("select", { id: "by-since" }, SINCE.map(([value, label]) => h("option", { value }, label)));
  const found = h("div", { id: kind }, h("p", { class: "empty" }, "Loading…"));
  const newer = h("button", { type: "button", click: () => { places.pop(); load(); } }, "Newer");
  const older = h("button", { type: "button", click: () => { places.push(next); load(); } }, "Older");
  let places = [null];
  let next = null;
  let request = new AbortController();
  for (const [name, input] of inputs) input.value = query.get(name) ?? "";
  since.value = query.get("since") ?? "";

  function given() {
    const chosen = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
    return Object.fromEntries(Object.entries({ ...chosen, since: since.value }).filter(([, value]) => value));
  }

  async function load() {
    request.abort();
    request = new AbortController();
    const filter = given();
    if (filter.since) filter.since = Math.floor(Date.now() / 1000) - Number(filter.since);
    try {
      const page = await get(kind, { ...filter, limit: PAGE, before: places.at(-1) }, request.signal);
      next = page.next;
      replaceContent(found, list(page[kind]));
      newer.disabled = places.length === 1;
      older.disabled = next === null;
    } catch (error) {
      if (error.name !== "AbortError") replaceContent(found, h("p", { class: "message bad" }, error.message));
    }
  }

  function apply(event) {
    event?.preventDefault();
    places = [null];
    const kept = new URLSearchParams(given()).toString();
    history.replaceState(null, "", kept ? `#/${kind}?${kept}` : `#/${kind}`);
    load();
  }

  since.addEventListener("change", () => apply());
  body.append(h("section", { class: "panel stack" },
    h("form", { class: "filters", submit: apply },
      filters.map(([name, label]) => h("div", { class: "field" }, h("label", { for: `by-${name}` }, label), inputs.get(name))),
      h("div", { class: "field" }, h("label", { for: "by-since" }, "Since"), since),
      h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Filter"),
        h("button", { type: "button", click: () => { for (const input of inputs.values()) input.value = ""; since.value = ""; apply(); } }, "Clear"))),
    found, h("div", { class: "row" }, newer, older)));
  load();
  return () => request.abort();
}
