// The subjects that are denied, or allowed, most; and the limits of each.

import { ApiError, get, poll, readRule } from "./api.js";
import { buttonGroup, h, meter, refresh, replaceContent, table } from "./dom.js";
import { attributesOf, count, dateTime, duration, limitInWords, sentence, whenInWords } from "./format.js";

const KINDS = [["limited", "Denied"], ["allowed", "Allowed"]];
const WINDOWS = [["minute", "Last minute"], ["hour", "Last hour"]];
const SHOWN = 50;

export const title = () => "Top subjects";

function subjectHref(rule, subject) {
  return `#/limited?${new URLSearchParams({ rule, subject })}`;
}

function ranking(answer) {
  const { subjects } = answer;
  if (!subjects.length) return h("p", { class: "empty" }, `No subject was ${answer.kind === "limited" ? "denied" : "allowed"} in this time.`);
  const most = subjects[0].count;
  const columns = [
    { label: "Subject", cell: (row) => h("a", { class: "mono", "data-key": `${row.rule} ${row.subject}`, href: subjectHref(row.rule, row.subject) }, row.subject) },
    { label: "Rule", cell: (row) => (row.rule === "ban" ? h("span", { class: "tag" }, "ban") : h("a", { href: `#/rules/${encodeURIComponent(row.rule)}`, "data-key": `rule ${row.rule} ${row.subject}` }, row.rule)) },
    { label: "Share", unseen: true, cell: (row) => meter(row.count / most, answer.kind === "limited" ? "thin harm" : "thin") },
    { label: "Requests", number: true, cell: (row) => [count(row.count), row.too_high_by ? h("span", { class: "soft" }, ` − ${count(row.too_high_by)}`) : null].filter(Boolean) },
  ];
  const error = answer.missing_at_most
    ? `Each count is too high by at most the number after the minus sign; subjects that are not listed have at most ${count(answer.missing_at_most)} requests.`
    : "Counts are exact.";
  const where = answer.scope === "cluster" ? `on all ${count(answer.nodes)} nodes` : "on this node";
  const listed = table(`${count(answer.total)} requests ${where}. ${error}`, columns, subjects);
  return answer.hint ? h("div", null, listed, h("p", { class: "note" }, sentence(answer.hint))) : listed;
}

function violationTable(violations) {
  if (!violations.length) return h("p", { class: "note" }, "No violations of this subject are recorded yet.");
  return table("Last recorded violations", [
    { label: "When", cell: (row) => dateTime(row.requested_at_ms) },
    { label: "Limit", cell: (row) => row.limit ?? "–" },
    { label: "Request", cell: (row) => [row.method, row.endpoint].filter(Boolean).join(" ") || "–" },
    { label: "Address", cell: (row) => row.ip_address ?? "–" },
    { label: "Retry after", number: true, cell: (row) => (row.retry_after_ms === null ? "–" : duration(row.retry_after_ms / 1000)) },
  ], violations);
}

// Shows the limits of `subject` by the rule `name`, and its recorded violations.
async function explainSubject(box, name, subject) {
  const link = (href, text, is_main) => h("a", { class: is_main ? "button main" : "button", href, "data-key": text }, text);
  const parts = [h("div", { class: "row spread" }, h("h2", { tabindex: "-1" }, "Limits of ", h("span", { class: "mono" }, subject)),
    h("a", { href: "#/limited", "data-key": "close" }, "Close"))];
  const actions = h("div", { class: "row" });
  if (name === "ban") {
    const bans = (await get("bans", { search: subject })).bans ?? [];
    const ban = bans.find((one) => one.subject === subject);
    parts.push(h("p", null, "It is banned", ban?.until ? ` until ${dateTime(ban.until)}` : "", ban?.reason ? `: ${ban.reason}.` : "."));
    actions.append(link(`#/bans?${new URLSearchParams({ search: subject })}`, "Open the ban", true));
  } else {
    try {
      const { data: rule } = await readRule(name);
      parts.push(h("p", null, "Rule ", h("strong", null, name), ` matches ${rule.when ? "requests where " : ""}${whenInWords(rule.when)}, and counts each `, h("code", null, rule.key), " separately. It allows:"),
        h("ul", { class: "plain" }, rule.limits.map((limit) => h("li", null, limitInWords(limit)))));
      if (rule.mode === "shadow") parts.push(h("p", { class: "message" }, "The rule is in shadow mode: it counts requests but denies none."));
      actions.append(link(`#/rules/${encodeURIComponent(name)}`, "Open the rule", true),
        link(`#/inspect?${new URLSearchParams(attributesOf(rule, subject))}`, "Inspect its buckets"),
        link(`#/overrides?${new URLSearchParams({ search: subject, rule: name, subject })}`, "Its overrides"));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      parts.push(h("p", null, `Rule ${name} is no longer active.`));
    }
  }
  actions.append(link(`#/violations?${new URLSearchParams({ subject })}`, "All its violations"));
  parts.push(actions);
  try {
    parts.push(violationTable((await get("violations", { subject, rule: name, limit: 10 })).violations));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    parts.push(h("p", { class: "note" }, error.message));
  }
  refresh(box, parts);
}

export function show({ body, actions, query }) {
  let kind = "limited";
  let within = "minute";
  let stop = () => {};
  let stopWhy = () => {};
  const list = h("div", { id: "ranking" }, h("p", { class: "empty" }, "Loading…"));
  const errorMessage = (error) => h("p", { class: "message bad" }, error.message);

  function restart() {
    stop();
    stop = poll(2_000, async (signal) => refresh(list, ranking(await get("top", { kind, window: within, limit: SHOWN }, signal))),
      (error) => replaceContent(list, errorMessage(error)));
  }

  actions.append(buttonGroup("What", KINDS, kind, (value) => { kind = value; restart(); }), buttonGroup("Time", WINDOWS, within, (value) => { within = value; restart(); }));
  if (query.get("subject")) {
    const box = h("section", { class: "panel stack", id: "why" }, h("p", { class: "empty" }, "Loading…"));
    body.append(box);
    stopWhy = poll(5_000, () => explainSubject(box, query.get("rule") ?? "", query.get("subject")), (error) => replaceContent(box, errorMessage(error)));
  }
  body.append(h("section", { class: "panel" }, list));
  restart();
  return () => {
    stop();
    stopWhy();
  };
}
