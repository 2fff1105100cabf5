// Bans: subject, end and reason.

import { confirmRemoval, openEntryDialog } from "./entry_dialog.js";
import { field, h, table } from "./dom.js";
import { pagedList } from "./paged_list.js";
import { dateTime } from "./format.js";

const LENGTHS = [["3600", "for an hour"], ["86400", "for a day"], ["604800", "for a week"], ["2592000", "for 30 days"], ["", "permanently"], ["at", "until…"]];

export const title = () => "Bans";

const has_ended = (ban) => Boolean(ban.until) && Date.parse(ban.until) <= Date.now();

// Formats a time for a datetime-local input: local time, to the minute.
function toLocalInput(time) {
  const date = new Date(time);
  date.setMinutes(date.getMinutes() - date.getTimezoneOffset());
  return date.toISOString().slice(0, 16);
}

// Opens the dialog for a ban; `ban` has its current values.
function editBan(ban) {
  const subject = field("Subject", h("input", { name: "subject", value: ban.subject ?? "", readonly: Boolean(ban.version), autocomplete: "off", spellcheck: "false", placeholder: "ip:198.51.100.0/24" }),
    "An attribute and its value, a wildcard or a network: user:42, user:bot-*, ip:198.51.100.0/24.");
  const reason = field("Reason", h("input", { name: "reason", value: ban.reason ?? "", autocomplete: "off" }), "Shown to the banned client.");
  const length = field("Duration", h("select", { name: "length" }, LENGTHS.map(([value, label]) => h("option", { value }, label))));
  const until = field("Until (your local time)", h("input", { type: "datetime-local", name: "until" }));
  const paint = () => { until.node.hidden = length.control.value !== "at"; };
  length.control.value = ban.until ? "at" : ban.version ? "" : "3600";
  until.control.value = toLocalInput(ban.until ?? Date.now() + 3_600_000);
  const known = until.control.value;
  length.control.addEventListener("change", paint);
  paint();

  function read() {
    const entry = { subject: subject.control.value.trim() };
    const chosen = length.control.value;
    const end = chosen === "at" ? Date.parse(until.control.value) : Date.now() + Number(chosen) * 1000;
    // An invalid time is sent as it is; the server rejects it with a message. The
    // input has no seconds, so an unchanged time is sent as it was.
    if (chosen === "at" && ban.until && until.control.value === known) entry.until = ban.until;
    else if (chosen) entry.until = Number.isNaN(end) ? until.control.value : new Date(end).toISOString().replace(/\.\d+Z$/, "Z");
    if (reason.control.value.trim()) entry.reason = reason.control.value.trim();
    return entry;
  }

  return openEntryDialog({
    kind: "bans", title: ban.version ? "Change a ban" : "Ban a subject", read, version: ban.version,
    note: "Bans are checked before all rules. This one is active on this node at once, and on other nodes within a second.", nodes: [subject.node, length.node, until.node, reason.node],
  });
}

export function show({ body, actions, query }) {
  const then = (done) => { if (done) bans.load(); };
  const lift = (row) => confirmRemoval({ kind: "bans", title: "Lift the ban?", text: `The rules apply to ${row.subject} again.`, verb: "Lift", given: { subject: row.subject }, version: row.version }).then(then);
  const list = (rows, caption, is_fixed) => table(caption, [
    { label: "Subject", cell: (row) => h("code", null, row.subject) },
    { label: "Until", cell: (row) => (row.until ? [dateTime(row.until), has_ended(row) ? [" ", h("span", { class: "tag off" }, "ended")] : null].flat() : "permanent") },
    { label: "Reason", cell: (row) => row.reason || "–" },
    { label: "Since", cell: (row) => (row.created_at ? dateTime(row.created_at) : "–") },
    ...(is_fixed ? [] : [{ label: "Edit", unseen: true, cell: (row) => h("div", { class: "row" },
      h("button", { type: "button", "data-key": `edit ${row.subject}`, "aria-label": `Change the ban on ${row.subject}`, click: () => editBan(row).then(then) }, "Change…"),
      h("button", { type: "button", class: "harm", "aria-label": `Lift the ban on ${row.subject}`, click: () => lift(row) }, "Lift…")) }]),
  ], rows);
  const add = h("button", { type: "button", class: "main", click: () => editBan({ subject: query.get("subject") ?? "" }).then(then) }, "Ban a subject…");
  actions.append(add);
  const bans = pagedList({ body, query, kind: "bans", hint: "part of a subject or reason", none: "No subject is banned.", list, fixed: () => { add.hidden = true; } });
  return bans.stop;
}
