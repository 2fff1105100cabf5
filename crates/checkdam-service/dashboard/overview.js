// Overview: numbers, the chart of traffic, the busiest rules, the most denied subjects.

import { get, poll } from "./api.js";
import { TrafficChart, sparkline, trafficRows } from "./charts.js";
import { announce, buttonGroup, h, refresh, replaceContent, table } from "./dom.js";
import { listen, live } from "./live_traffic.js";
import { NOT_ALLOWED, OUTCOMES, byOutcome, compact, count, percent, sum } from "./format.js";

const WINDOWS = [["minute", "1 min"], ["quarter", "15 min"], ["day", "24 h"]];
const RULES_SHOWN = 12;
// Numbers of a single second fluctuate; this many are averaged.
const AVERAGED_S = 5;
const ANNOUNCE_EVERY_MS = 30_000;

export const title = () => "Overview";

const recent = (values) => sum(values.slice(-AVERAGED_S)) / Math.max(Math.min(values.length, AVERAGED_S), 1);

function tiles() {
  const figures = {};
  const hints = {};
  const tile = (kind, label, hint) => {
    figures[kind] = h("div", { class: "figure", "data-figure": kind }, "–");
    return h("div", { class: `panel tile ${kind}` }, h("div", { class: "label" }, label), figures[kind], hints[kind] = h("div", { class: "note" }, hint));
  };
  const node = h("div", { class: "tiles" },
    tile("requests", "Requests per second", `mean of ${AVERAGED_S} s`), tile("limited", "Denied per second", `mean of ${AVERAGED_S} s`),
    tile("share", "Share denied", "last minute"), tile("shadow", "Shadow denials per second", "would have been denied"));
  return {
    node,
    draw({ total }) {
      const refused = sum(NOT_ALLOWED.map((kind) => recent(total[kind])));
      figures.requests.textContent = compact(recent(total.allowed) + refused);
      figures.limited.textContent = compact(recent(total.limited));
      const [allowed, ...others] = ["allowed", ...NOT_ALLOWED].map((kind) => sum(total[kind]));
      figures.share.textContent = percent(others[0], allowed + sum(others));
      // Neither comes from a limit: they are shown only where there are any.
      hints.limited.textContent = [`mean of ${AVERAGED_S} s`, ...["banned", "unavailable"].filter((kind) => recent(total[kind])).map((kind) => `${OUTCOMES[kind].toLowerCase()} ${compact(recent(total[kind]))}`)].join("; ");
      figures.shadow.textContent = compact(recent(total.shadow));
    },
  };
}

// The rules of `rules`, busiest first, as a table; a click on one filters the chart.
function busiest(rules, step_s, chosen, choose) {
  const of = (rule) => ({ ...rule, passed: sum(rule.allowed), denied: sum(rule.limited), shadow_denied: sum(rule.shadow), store_failed: sum(rule.unavailable) });
  const rows = rules.map(of).sort((one, other) => other.passed + other.denied - one.passed - one.denied).slice(0, RULES_SHOWN);
  if (!rows.length) return h("p", { class: "empty" }, "No rule matched a request in this time.");
  const seconds = rows[0].allowed.length * step_s;
  const columns = [
    { label: "Rule", cell: (row) => h("button", { type: "button", class: "link", "data-key": row.rule, "aria-pressed": String(row.rule === chosen), click: () => choose(row.rule === chosen ? null : row.rule) }, row.rule) },
    { label: "Traffic", unseen: true, cell: (row) => sparkline(row) },
    { label: "Allowed/s", number: true, cell: (row) => compact(row.passed / seconds) },
    { label: "Denied/s", number: true, cell: (row) => h("span", { class: row.denied ? "bad" : "soft" }, compact(row.denied / seconds)) },
    ...(rows.some((row) => row.store_failed) ? [{ label: "Store unavailable/s", number: true, cell: (row) => h("span", { class: row.store_failed ? "warn" : "soft" }, compact(row.store_failed / seconds)) }] : []),
    { label: "Shadow/s", number: true, cell: (row) => h("span", { class: row.shadow_denied ? "shade" : "soft" }, compact(row.shadow_denied / seconds)) },
  ];
  return table("Averages over the whole window. Select a rule to show only its traffic in the chart.", columns, rows, { row: (row) => ({ class: row.rule === chosen && "chosen" }) });
}

// Rules that match no request, because no request has an attribute that they need.
function idleRules(unseen) {
  if (!unseen.length) return null;
  return h("section", { class: "panel stack" }, h("h2", null, "Rules that match no request"),
    h("ul", { class: "plain" }, unseen.slice(0, RULES_SHOWN).map(({ rule, attribute }) => h("li", null,
      h("a", { href: `#/rules/${encodeURIComponent(rule)}`, "data-key": `${rule} ${attribute}` }, rule), " needs ", h("code", null, attribute), ", which no request had in the last hour."))),
    unseen.length > RULES_SHOWN && h("p", { class: "note" }, `and ${count(unseen.length - RULES_SHOWN)} more`));
}

function mostLimited(subjects) {
  if (!subjects.length) return h("p", { class: "empty" }, "No subject was denied in the last minute.");
  return table("In the last minute", [
    { label: "Subject", cell: (row) => h("a", { class: "mono", "data-key": `${row.rule} ${row.subject}`, href: `#/limited?${new URLSearchParams({ rule: row.rule, subject: row.subject })}` }, row.subject) },
    { label: "Rule", cell: (row) => row.rule },
    { label: "Denied", number: true, cell: (row) => count(row.count) },
  ], subjects);
}

export function show({ body, actions }) {
  let window_name = "minute";
  let chosen = null;
  let fetched = null;
  const numbers = tiles();
  const chart = new TrafficChart();
  const heading = h("h2", null, "Traffic, all rules");
  const clear = h("button", { type: "button", hidden: true, click: () => choose(null) }, "Show all rules");
  const list = h("div", { id: "busiest" });
  const top = h("div", { id: "most-limited" });
  const idle = h("div", { id: "idle-rules" });
  const figures = h("details", null, h("summary", null, "The chart as a table"), h("div", { class: "scroll", tabindex: "0" }));
  let stopFetching = () => {};

  const data = () => (window_name === "minute" ? { step_s: 1, end: live().end, total: live().total, rules: [...live().rules.values()] } : fetched);

  function draw() {
    const now = data();
    if (!now?.end) return;
    const one = chosen === null ? null : now.rules.find((rule) => rule.rule === chosen);
    const none = now.total.allowed.map(() => 0);
    const series = chosen === null ? now.total : one ?? Object.fromEntries(Object.keys(OUTCOMES).map((kind) => [kind, none]));
    chart.draw(series, now.end, now.step_s, heading.textContent);
    refresh(list, busiest(now.rules, now.step_s, chosen, choose));
    if (figures.open) {
      refresh(figures.lastChild, table(heading.textContent, [
        { label: "From", cell: (row) => row.time },
        ...Object.entries(OUTCOMES).map(([kind, label]) => ({ label: kind === "shadow" ? "Shadow" : label, number: true, cell: (row) => count(row[kind]) })),
      ], trafficRows(series, now.end, now.step_s)));
    }
  }

  function choose(rule) {
    chosen = rule;
    heading.textContent = rule === null ? "Traffic, all rules" : `Traffic of ${rule}`;
    clear.hidden = rule === null;
    if (window_name !== "minute") chooseWindow(window_name);
    else draw();
  }

  function chooseWindow(value) {
    stopFetching();
    window_name = value;
    fetched = null;
    if (window_name === "minute") return draw();
    stopFetching = poll(window_name === "day" ? 60_000 : 5_000, async (signal) => {
      const { total, rules, ...found } = await get("traffic", { window: window_name }, signal);
      Object.assign(found, { total: byOutcome(total), rules: rules.map(byOutcome) });
      if (chosen !== null && !found.rules.some((rule) => rule.rule === chosen)) {
        found.rules.push(...(await get("traffic", { window: window_name, rule: chosen }, signal)).rules.map(byOutcome));
      }
      fetched = found;
      draw();
    }, (error) => replaceContent(list, h("p", { class: "message bad" }, error.message)));
  }

  actions.append(buttonGroup("Time", WINDOWS, window_name, chooseWindow));
  figures.addEventListener("toggle", draw);
  body.append(numbers.node, idle,
    h("section", { class: "panel stack" }, h("div", { class: "row spread" }, heading, clear), chart.node, figures),
    h("div", { class: "columns" },
      h("section", { class: "panel stack" }, h("h2", null, "Busiest rules"), list),
      h("section", { class: "panel stack" }, h("div", { class: "row spread" }, h("h2", null, "Most denied"), h("a", { href: "#/limited" }, "Top subjects")), top)));

  const update = (state) => {
    numbers.draw(state);
    if (window_name === "minute") draw();
  };
  if (live().end) update(live());
  const stops = [
    poll(10_000, async (signal) => refresh(idle, idleRules((await get("status", {}, signal)).unseen_attributes)), () => replaceContent(idle)),
    listen(update),
    poll(3_000, async (signal) => refresh(top, mostLimited((await get("top", { kind: "limited", window: "minute", limit: 8 }, signal)).subjects)),
      (error) => replaceContent(top, h("p", { class: "message bad" }, error.message))),
  ];
  const announcer = setInterval(() => {
    const { total } = live();
    const all = sum(["allowed", ...NOT_ALLOWED].map((kind) => recent(total[kind])));
    announce(`${compact(all)} requests per second, ${compact(recent(total.limited))} of them denied`);
  }, ANNOUNCE_EVERY_MS);
  return () => {
    stops.forEach((stop) => stop());
    stopFetching();
    clearInterval(announcer);
    chart.end();
  };
}
