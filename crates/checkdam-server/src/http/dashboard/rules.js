// The rules, a page at a time: there may be tens of thousands.

import { get } from "./api.js";
import { h, say, swap, table } from "./dom.js";
import { count, limitsInWords, whenInWords } from "./words.js";

const PAGE = 50;
const TYPING_MS = 150;

export const title = () => "Rules";

function list({ rules, total }, from) {
  if (!rules.length) return h("p", { class: "empty" }, "No rule matches.");
  const upto = from + rules.length;
  return table(`Rules ${count(from + 1)} to ${count(upto)} of ${count(total)}`, [
    { label: "Rule", cell: (row) => h("a", { href: `#/rules/${encodeURIComponent(row.name)}`, "data-key": row.name }, row.name) },
    { label: "Counts by", cell: (row) => h("code", null, row.key) },
    { label: "Concerns", cell: (row) => whenInWords(row.when) },
    { label: "Allows", cell: (row) => limitsInWords(row.limits) },
    { label: "Mode", cell: (row) => h("span", { class: `tag ${row.mode ?? ""}` }, row.mode ?? "enforce") },
  ], rules);
}

export function show({ body, actions, query }) {
  const search = h("input", { type: "search", id: "search", placeholder: "part of a name, key, scope or description", autocomplete: "off", spellcheck: "false" });
  const found = h("div", { id: "rules" }, h("p", { class: "empty" }, "Asking…"));
  const back = h("button", { type: "button", click: () => { starts.pop(); load(); } }, "Previous");
  const next = h("button", { type: "button", click: () => { starts.push(after); load(); } }, "Next");
  const source = h("p", { class: "told", hidden: true });
  let starts = [null];
  let after = null;
  let asked = new AbortController();
  let timer;
  search.value = query.get("search") ?? "";

  async function load() {
    asked.abort();
    asked = new AbortController();
    try {
      const page = await get("rules", { search: search.value.trim(), limit: PAGE, after: starts.at(-1) }, asked.signal);
      after = page.next;
      swap(found, list(page, (starts.length - 1) * PAGE));
      say(`${count(page.total)} rules found`);
      back.disabled = starts.length === 1;
      next.disabled = after === null;
    } catch (error) {
      if (error.name === "AbortError") return;
      // The rule at which a page began may be gone.
      if (error.field === "after" && starts.length > 1) {
        starts = [null];
        load();
        return;
      }
      swap(found, h("p", { class: "told bad" }, error.message));
    }
  }

  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      starts = [null];
      const text = search.value.trim();
      history.replaceState(null, "", text ? `#/rules?${new URLSearchParams({ search: text })}` : "#/rules");
      load();
    }, TYPING_MS);
  });
  const add = h("a", { class: "button main", href: "#/rules/" }, "Add a rule");
  actions.append(add);
  body.append(source, h("section", { class: "panel stack" },
    h("div", { class: "field" }, h("label", { for: "search" }, "Search"), search), found, h("div", { class: "row" }, back, next)));
  load();
  get("status").then(({ rules }) => {
    if (rules.source !== "file") return;
    add.hidden = true;
    source.hidden = false;
    source.textContent = `The rules come from ${rules.from}: they are changed in that file, and seen here.`;
  }).catch(() => {});
  return () => {
    asked.abort();
    clearTimeout(timer);
  };
}
