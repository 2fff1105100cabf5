// Preview of an edit: its effect on recent traffic.

import { h, meter, table } from "./dom.js";
import { count, duration, percent, sentence } from "./format.js";

function bar(label, limited, all) {
  return h("div", { class: "stack" }, h("div", { class: "row spread" }, h("span", null, label),
    h("span", null, h("strong", null, count(limited)), ` of ${count(all)} denied (${percent(limited, all)})`)), meter(all ? limited / all : 0, "harm"));
}

function change(preview) {
  const { newly_limited: more, newly_allowed: fewer } = preview;
  if (!more && !fewer) return h("p", { class: "message" }, "No decision would have changed.");
  const parts = [];
  if (more) parts.push(h("strong", { class: "bad" }, `${count(more)} more requests denied`));
  if (more && fewer) parts.push(", ");
  if (fewer) parts.push(h("strong", { class: "good" }, `${count(fewer)} more requests allowed`));
  return h("p", { class: more ? "message bad" : "message" }, ...parts, ".");
}

export function previewPanel(preview) {
  const { seconds, requests, live, before, after, rule, note } = preview;
  const subjects = preview.subjects.filter((row) => row.limited_before !== row.limited_after);
  const text = note ? h("p", { class: "note" }, sentence(note)) : null;
  const apart = preview.disagrees ? h("p", { class: "message bad", id: "preview-disagrees" },
    `In live traffic ${count(live.limited)} of ${count(live.allowed + live.limited)} requests were denied; the replay denied ${count(before.limited)}. Treat these numbers as an estimate.`) : null;
  const close = (children) => h("section", { class: "panel stack", id: "preview", "aria-label": "Effect preview" },
    h("h2", { tabindex: "-1" }, "Effect on recent traffic"), ...children.filter(Boolean));
  if (!requests) return close([h("p", { class: "message" }, "No recent requests are kept, so there is nothing to replay."), text]);
  const sampled = preview.sampled_one_in > 1 ? ` (all requests of the busiest clients, and those of one in ${count(preview.sampled_one_in)} other clients)` : "";
  return close([
    h("p", { class: "note" }, `Replayed ${count(requests)} requests of the last ${duration(seconds)}${sampled}, with the active rules and with this edit.`),
    change(preview),
    apart,
    h("div", { class: "columns" },
      h("div", { class: "stack" }, h("h3", null, "All requests"), bar("Now", before.limited, before.allowed + before.limited), bar("After", after.limited, after.allowed + after.limited)),
      h("div", { class: "stack" }, h("h3", null, "This rule"), bar("Now", rule.before.limited, rule.before.concerned), bar("After", rule.after.limited, rule.after.concerned))),
    subjects.length ? table("Subjects most affected", [
      { label: "Subject", cell: (row) => h("code", null, row.subject) },
      { label: "Requests", number: true, cell: (row) => count(row.concerned) },
      { label: "Denied now", number: true, cell: (row) => count(row.limited_before) },
      { label: "Denied after", number: true, cell: (row) => h("strong", { class: row.limited_after > row.limited_before ? "bad" : "good" }, count(row.limited_after)) },
    ], subjects) : null,
    text,
  ]);
}
