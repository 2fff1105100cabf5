// Searchable, paginated list of a rulebook's rules, overrides or bans; there may be
// tens of thousands.

import { get } from "./api.js";
import { announce, h, replaceContent } from "./dom.js";
import { count } from "./format.js";

const PAGE = 50;
const TYPING_MS = 150;
const KINDS = [["rules", "Rules"], ["overrides", "Overrides"], ["bans", "Bans"]];
const TABS = [...KINDS, ["changes", "Changes"]];

export function rulebookTabs(chosen) {
  return h("div", { class: "choice", role: "navigation", "aria-label": "Rulebook contents" }, TABS.map(([kind, label]) =>
    h("a", { href: `#/${kind}`, "aria-current": kind === chosen && "page" }, label)));
}

// `list(rows, caption, is_fixed)` draws a page. `is_fixed` means read-only; `fixed` is
// then called too. Returns `load`, which redraws, and `stop`.
export function pagedList({ body, query, kind, hint, none, list, fixed }) {
  const label = KINDS.find(([name]) => name === kind)[1];
  const search = h("input", { type: "search", id: "search", placeholder: hint, autocomplete: "off", spellcheck: "false" });
  const found = h("div", { id: kind }, h("p", { class: "empty" }, "Loading…"));
  const back = h("button", { type: "button", click: () => { starts.pop(); load(); } }, "Previous");
  const next = h("button", { type: "button", click: () => { starts.push(page.next); load(); } }, "Next");
  const source = h("p", { class: "message", hidden: true });
  let starts = [null];
  let page = null;
  let is_fixed = false;
  let request = new AbortController();
  let timer;
  search.value = query.get("search") ?? "";

  function draw() {
    const rows = page[kind];
    const from = (starts.length - 1) * PAGE;
    const caption = `${label} ${count(from + 1)} to ${count(from + rows.length)} of ${count(page.total)}`;
    const empty = search.value.trim() ? "Nothing matches." : none;
    replaceContent(found, rows.length ? list(rows, caption, is_fixed) : h("p", { class: "empty" }, empty));
    back.disabled = starts.length === 1;
    next.disabled = page.next === null;
  }

  async function load() {
    request.abort();
    request = new AbortController();
    try {
      page = await get(kind, { search: search.value.trim(), limit: PAGE, after: starts.at(-1) }, request.signal);
      draw();
      announce(`${count(page.total)} ${kind} found`);
    } catch (error) {
      if (error.name === "AbortError") return;
      // The entry at which the page began may have been removed.
      if (error.field === "after" && starts.length > 1) {
        starts = [null];
        load();
        return;
      }
      replaceContent(found, h("p", { class: "message bad" }, error.message));
    }
  }

  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      starts = [null];
      const text = search.value.trim();
      history.replaceState(null, "", text ? `#/${kind}?${new URLSearchParams({ search: text })}` : `#/${kind}`);
      load();
    }, TYPING_MS);
  });
  body.append(h("div", null, rulebookTabs(kind)), source, h("section", { class: "panel stack" },
    h("div", { class: "field" }, h("label", { for: "search" }, "Search"), search), found, h("div", { class: "row" }, back, next)));
  load();
  get("status").then(({ rules }) => {
    if (rules.source !== "file") return;
    is_fixed = true;
    fixed();
    source.hidden = false;
    source.textContent = `The rules come from ${rules.from}: edit that file. This page is read-only.`;
    if (page) draw();
  }).catch(() => {});
  return {
    load,
    stop() {
      request.abort();
      clearTimeout(timer);
    },
  };
}
