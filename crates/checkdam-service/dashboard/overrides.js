// Other limits for some subjects of a rule.

import { confirmRemoval, openEntryDialog } from "./entry_dialog.js";
import { field, h, table } from "./dom.js";
import { pagedList } from "./paged_list.js";
import { dateTime, limitsInWords } from "./format.js";

const KINDS = [["limits", "these limits"], ["scale", "a multiple of the rule's limits"], ["unlimited", "no limit"]];

export const title = () => "Overrides";

function allowanceText(row) {
  if (row.unlimited) return "no limit";
  return row.scale === undefined ? limitsInWords(row.limits) : `${row.scale} times the rule's limits`;
}

const kindOf = (row) => (row.unlimited ? "unlimited" : row.scale === undefined ? "limits" : "scale");

// Opens the dialog for an override; `row` has its current values.
function editOverride(row) {
  const input = (name, value, more) => h("input", { name, value: value ?? "", autocomplete: "off", spellcheck: "false", ...more });
  const is_known = Boolean(row.version);
  const rule = field("Rule", input("rule", row.rule, { readonly: is_known }));
  const subject = field("Subject", input("subject", row.subject, { readonly: is_known, placeholder: "user:42" }), "The rule's key with its attributes filled in; * matches anything.");
  const kind = field("Replace the rule's limits with", h("select", { name: "kind" }, KINDS.map(([value, label]) => h("option", { value }, label))));
  const limits = field("Limits", input("limits", row.limits?.join(", "), { placeholder: "100/s burst 500, 5000/h" }), "Separate several with commas; a request must pass all of them.");
  const scale = field("Factor", input("scale", row.scale ?? 10, { inputmode: "decimal" }));
  const why = field("Description", input("description", row.description));
  const paint = () => {
    limits.node.hidden = kind.control.value !== "limits";
    scale.node.hidden = kind.control.value !== "scale";
  };
  kind.control.value = is_known ? kindOf(row) : "limits";
  kind.control.addEventListener("change", paint);
  paint();

  function read() {
    const entry = { rule: rule.control.value.trim(), subject: subject.control.value.trim() };
    // An invalid number is sent as it is; the server rejects it with a message.
    const times = Number(scale.control.value);
    if (kind.control.value === "unlimited") entry.unlimited = true;
    else if (kind.control.value === "scale") entry.scale = Number.isNaN(times) ? scale.control.value : times;
    else entry.limits = limits.control.value.split(",").map((limit) => limit.trim()).filter(Boolean);
    if (why.control.value.trim()) entry.description = why.control.value.trim();
    return entry;
  }

  return openEntryDialog({
    kind: "overrides", title: is_known ? "Change an override" : "Add an override", read, version: row.version,
    note: "It is active on this node at once and on every other within a second. Requests already counted stay counted.",
    nodes: [rule.node, subject.node, kind.node, limits.node, scale.node, why.node],
  });
}

export function show({ body, actions, query }) {
  const then = (done) => { if (done) overrides.load(); };
  const remove = (row) => confirmRemoval({
    kind: "overrides", title: "Remove the override?", text: `The limits of rule ${row.rule} apply to ${row.subject} again.`, verb: "Remove",
    given: { rule: row.rule, subject: row.subject }, version: row.version,
  }).then(then);
  const list = (rows, caption, is_fixed) => table(caption, [
    { label: "Subject", cell: (row) => h("code", null, row.subject) },
    { label: "Rule", cell: (row) => h("a", { href: `#/rules/${encodeURIComponent(row.rule)}`, "data-key": `rule ${row.rule} ${row.subject}` }, row.rule) },
    { label: "Allows", cell: allowanceText },
    { label: "Description", cell: (row) => row.description || "–" },
    { label: "Changed", cell: (row) => (row.updated_at ? dateTime(row.updated_at) : "–") },
    ...(is_fixed ? [] : [{ label: "Edit", unseen: true, cell: (row) => h("div", { class: "row" },
      h("button", { type: "button", "data-key": `edit ${row.rule} ${row.subject}`, "aria-label": `Change the override of ${row.subject}`, click: () => editOverride(row).then(then) }, "Change…"),
      h("button", { type: "button", class: "harm", "aria-label": `Remove the override of ${row.subject}`, click: () => remove(row) }, "Remove…")) }]),
  ], rows);
  const given = { rule: query.get("rule") ?? "", subject: query.get("subject") ?? "" };
  const add = h("button", { type: "button", class: "main", click: () => editOverride(given).then(then) }, "Add an override…");
  actions.append(add);
  const overrides = pagedList({ body, query, kind: "overrides", hint: "part of a subject, rule or description", none: "There are no overrides.", list, fixed: () => { add.hidden = true; } });
  return overrides.stop;
}
