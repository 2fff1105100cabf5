// The buckets of one request: which rules apply to it and how full each tier is,
// updated live.

import { ApiError, Unreachable, poll, post } from "./api.js";
import { announce, confirm, field, h, isInteracting, meter, replaceContent, setFieldError, setMeter } from "./dom.js";
import { count, duration, limitInWords, sentence } from "./format.js";

const POLL_MS = 1_000;
const DRAW_MS = 100;
const USUAL = ["user", "plan", "ip", "endpoint", "method", "tenant", "api_key", "host"];
// Algorithms whose level rises steadily; windows refill in steps, which the next
// response shows.
const STEADY = ["token_bucket", "leaky_bucket"];

export const title = () => "Bucket inspector";

// A tier's bar, remaining count and time until full; `refresh` updates them to the
// current time.
function tierRow(rule, tier, asked_ms) {
  const bar = meter(0);
  const number = h("strong", { "data-level": `${rule.rule} ${tier.quota}` });
  const in_debt = h("strong", { class: "bad", "data-debt": `${rule.rule} ${tier.quota}` });
  const promise = h("span", { class: "soft" });
  const refresh = () => {
    const passed_ms = performance.now() - asked_ms;
    const is_over = passed_ms >= tier.reset_after_ms;
    const gained = is_over ? 1 : STEADY.includes(tier.algorithm) ? passed_ms / tier.reset_after_ms : 0;
    // What is owed shrinks steadily: first the debt, then what is missing.
    const owed = (tier.limit - tier.remaining + (tier.debt ?? 0)) * (tier.reset_after_ms ? 1 - gained : 1);
    const now = Math.max(tier.limit - owed, 0);
    const debt = Math.max(owed - tier.limit, 0);
    setMeter(bar, now / tier.limit);
    bar.classList.toggle("low", now < tier.limit * 0.1);
    number.textContent = count(Math.floor(now));
    const left_ms = tier.reset_after_ms - passed_ms;
    in_debt.textContent = debt > 0 ? `${count(Math.ceil(debt))} in debt, ` : "";
    promise.textContent = tier.reset_after_ms === 0 || left_ms <= 0 ? "full" : `full in ${duration(left_ms / 1000)}`;
  };
  refresh();
  const node = h("div", { class: "stack" }, h("div", { class: "row spread" },
    h("span", null, limitInWords(tier.quota)), h("span", null, number, ` of ${count(tier.limit)} left, `, in_debt, promise)), bar);
  return { node, refresh };
}

function ruleCard(rule, asked_ms, refreshers) {
  const tiers = rule.tiers.map((tier) => tierRow(rule, tier, asked_ms));
  refreshers.push(...tiers.map((tier) => tier.refresh));
  return h("section", { class: "panel stack" },
    h("div", { class: "row spread" },
      h("h2", null, h("a", { href: `#/rules/${encodeURIComponent(rule.rule)}`, "data-key": rule.rule }, rule.rule)),
      h("span", { class: "row" }, h("code", null, rule.subject), h("span", { class: `tag ${rule.mode}` }, rule.mode), [...new Set(rule.tiers.map((tier) => tier.algorithm))].map((algorithm) => h("span", { class: "tag" }, algorithm)))),
    tiers.map((tier) => tier.node),
    h("ul", { class: "plain note" }, rule.reasons.map((reason) => h("li", null, reason))));
}

function others(answer, is_open) {
  if (!answer.others.length) return null;
  const more = answer.others_left_out ? h("p", { class: "note" }, `and ${count(answer.others_left_out)} more`) : null;
  return h("details", { class: "panel", open: is_open }, h("summary", { "data-key": "others" }, `Rules that do not match (${count(answer.others.length + answer.others_left_out)})`),
    h("dl", null, answer.others.map((rule) => [h("dt", null, rule.rule), h("dd", null, rule.reasons.join("; "))])), more);
}

function verdict(answer) {
  if (answer.ban) return h("p", { class: "message bad" }, `Banned: ${answer.ban.subject}${answer.ban.reason ? `, ${answer.ban.reason}` : ""}.`);
  if (!answer.matches.length) return h("p", { class: "message" }, "No rule matches this request: it would be allowed.");
  if (answer.allowed) return h("p", { class: "message" }, h("strong", { class: "good" }, "It would be allowed now."));
  return h("p", { class: "message bad" }, h("strong", null, "It would be denied now"), ` by ${answer.violated}.`);
}

// Rows of name and value; `changed` is called on every edit.
function attributeRows(given, changed) {
  const rows = h("div", { class: "stack" });
  const add = (name = "", value = "") => {
    const row = h("div", { class: "pair" },
      h("input", { "aria-label": "Attribute", list: "usual", value: name, placeholder: "user", autocomplete: "off", spellcheck: "false", class: "name", input: changed }),
      h("input", { "aria-label": `Value of ${name || "the attribute"}`, value, placeholder: "42", autocomplete: "off", spellcheck: "false", class: "value", input: changed }),
      h("button", { type: "button", "aria-label": `Remove ${name || "the attribute"}`, click: () => { row.remove(); changed(); } }, "×"));
    rows.append(row);
    return row;
  };
  Object.entries(given).forEach(([name, value]) => add(name, value));
  if (!rows.children.length) add("user", "");
  const read = () => Object.fromEntries([...rows.children]
    .map((row) => [row.querySelector(".name").value.trim(), row.querySelector(".value").value]).filter(([name, value]) => name && value));
  return { node: rows, read, add };
}

export function show({ body, query }) {
  const given = Object.fromEntries([...query].filter(([name]) => name !== "@domain"));
  let refreshers = [];
  let stop = () => {};
  let last = null;
  let timer;
  const rows = attributeRows(given, () => { clearTimeout(timer); timer = setTimeout(begin, 300); });
  const domain = field("Domain (optional)", h("input", { autocomplete: "off", value: query.get("@domain") ?? "", input: () => { clearTimeout(timer); timer = setTimeout(begin, 300); } }));
  const cost = field("Cost to refund", h("input", { type: "number", min: "1", value: "1" }));
  const fault = h("p", { class: "fault", role: "alert" });
  const found = h("div", { class: "stack", id: "found" });
  const reset = h("button", { type: "button", class: "harm", disabled: true, click: () => act("reset") }, "Reset…");
  const refund = h("button", { type: "button", disabled: true, click: () => act("refund") }, "Refund…");

  const request = () => ({ attributes: rows.read(), ...(domain.control.value.trim() ? { domain: domain.control.value.trim() } : {}) });

  function draw(answer, asked_ms) {
    last = answer;
    refreshers = [];
    const is_open = found.querySelector("details")?.open ?? false;
    const cards = answer.matches.map((rule) => ruleCard(rule, asked_ms, refreshers));
    const hints = (answer.hints ?? []).map((hint) => h("p", { class: "message warn" }, sentence(hint)));
    replaceContent(found, verdict(answer), ...hints, ...cards, others(answer, is_open));
    reset.disabled = refund.disabled = !answer.matches.length;
  }

  function begin() {
    stop();
    const inspected = request();
    const kept = new URLSearchParams({ ...inspected.attributes, ...(inspected.domain ? { "@domain": inspected.domain } : {}) });
    history.replaceState(null, "", `#/inspect${kept.size ? `?${kept}` : ""}`);
    reset.disabled = refund.disabled = true;
    refreshers = [];
    fault.textContent = "";
    if (!Object.keys(inspected.attributes).length) {
      replaceContent(found, h("p", { class: "empty" }, "Enter the attributes of a request, such as user = 42."));
      return;
    }
    let is_first = true;
    stop = poll(POLL_MS, async (signal) => {
      const answer = await post("inspect", inspected, signal);
      if (is_first || !isInteracting(found)) draw(answer, performance.now());
      is_first = false;
    }, (error) => { fault.textContent = error.message; });
  }

  async function act(verb) {
    const subjects = last.matches.map((rule) => h("li", null, h("strong", null, rule.rule), " ", h("code", null, rule.subject)));
    const amount = Number(cost.control.value);
    if (verb === "refund" && !(Number.isInteger(amount) && amount >= 1)) return setFieldError(cost, "Enter a whole number, 1 or more.");
    setFieldError(cost, "");
    const text = verb === "reset" ? "These buckets become full again, for every request that shares them."
      : `Each of these buckets gets ${count(amount)} back, up to its capacity.`;
    const is_meant = await confirm(verb === "reset" ? "Reset these buckets?" : `Refund ${count(amount)} to these buckets?`,
      h("div", { class: "stack" }, h("p", null, text), h("ul", { class: "plain" }, subjects)), verb === "reset" ? "Reset" : "Refund");
    if (!is_meant) return undefined;
    try {
      await post(verb, verb === "refund" ? { ...request(), cost: amount } : request());
      announce(verb === "reset" ? "The buckets are full again." : "Refunded.");
      begin();
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
      fault.textContent = error.message;
    }
    return undefined;
  }

  body.append(h("datalist", { id: "usual" }, USUAL.map((value) => h("option", { value }))),
    h("section", { class: "panel stack" }, h("h2", null, "Request attributes"), rows.node, fault,
      h("div", { class: "row" }, h("button", { type: "button", click: () => rows.add().querySelector("input").focus() }, "Add an attribute")),
      h("details", null, h("summary", null, "Domain and cost to refund"), h("div", { class: "fields" }, domain.node, cost.node)),
      h("div", { class: "row" }, reset, refund, h("span", { class: "note" }, "Inspecting a request does not charge it."))), found);
  const drawing = setInterval(() => refreshers.forEach((refresh) => refresh()), matchMedia("(prefers-reduced-motion: reduce)").matches ? POLL_MS : DRAW_MS);
  begin();
  return () => {
    stop();
    clearInterval(drawing);
    clearTimeout(timer);
  };
}
