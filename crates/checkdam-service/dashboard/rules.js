// The list of rules.

import { h, table } from "./dom.js";
import { pagedList } from "./paged_list.js";
import { limitsInWords, whenInWords } from "./format.js";

export const title = () => "Rules";

const list = (rules, caption) => table(caption, [
  { label: "Rule", cell: (row) => h("a", { href: `#/rules/${encodeURIComponent(row.name)}`, "data-key": row.name }, row.name) },
  { label: "Counts by", cell: (row) => h("code", null, row.key) },
  { label: "Matches", cell: (row) => whenInWords(row.when) },
  { label: "Allows", cell: (row) => limitsInWords(row.limits) },
  { label: "Mode", cell: (row) => h("span", { class: `tag ${row.mode ?? ""}` }, row.mode ?? "enforce") },
], rules);

export function show({ body, actions, query }) {
  const add = h("a", { class: "button main", href: "#/rules/" }, "Add a rule");
  actions.append(add);
  const hint = "part of a name, key, scope or description";
  return pagedList({ body, query, kind: "rules", hint, none: "There are no rules: every request is allowed.", list, fixed: () => { add.hidden = true; } }).stop;
}
