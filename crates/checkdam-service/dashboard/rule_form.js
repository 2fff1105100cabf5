// The editor's form: the common fields one by one, or the whole rule as JSON.

import { buttonGroup, field, h, setFieldError } from "./dom.js";
import { limitInWords } from "./format.js";

const ALGORITHMS = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];
const MODES = [["enforce", "enforce: deny requests over the limit"], ["shadow", "shadow: count but never deny"], ["off", "off"]];
const WEEKDAYS = [["", "monday (default)"], ...["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"].map((day) => [day, day])];
const FAILURES = [["local", "local: each node allows its share"], ["closed", "closed: deny"], ["open", "open: allow"]];
// Defaults, which are omitted from the rule.
const USUAL = { algorithm: "token_bucket", mode: "enforce", on_store_failure: "local", priority: 0, description: "", strict: false, zone: "", anchor: "", week_starts: "" };

const text = (attributes) => h("input", { autocomplete: "off", spellcheck: "false", ...attributes });
const select = (options) => h("select", null, options.map((option) => h("option", { value: [option].flat()[0] }, [option].flat().at(-1))));

// The limits, a line each.
function limitList(changed) {
  const rows = h("div", { class: "stack" });
  let all = [];
  const add = (value) => {
    const input = text({ value, placeholder: "10/s burst 50", class: "limit" });
    const one = field("", input, "");
    const words = h("p", { class: "note" });
    const describe = () => { words.textContent = limitInWords(input.value.trim()) === input.value.trim() ? "" : limitInWords(input.value.trim()); };
    const remove = h("button", { type: "button", click: () => { all = all.filter((other) => other !== one); row.remove(); number(); changed(); } }, "×");
    const row = h("div", null, h("div", { class: "row" }, h("div", { class: "grow" }, input), remove), one.fault, words);
    one.remove = remove;
    input.addEventListener("input", () => { describe(); changed(); });
    describe();
    all.push(one);
    rows.append(row);
    number();
    return input;
  };
  const number = () => all.forEach((one, index) => {
    one.control.setAttribute("aria-label", `Limit ${index + 1}`);
    one.remove.setAttribute("aria-label", `Remove limit ${index + 1}`);
    one.remove.disabled = all.length === 1;
  });
  return {
    node: h("fieldset", null, h("legend", null, "Limits (a request must pass all of them)"), rows,
      h("div", null, h("button", { type: "button", click: () => { add("").focus(); changed(); } }, "Add a limit"))),
    write(limits) { all = []; rows.replaceChildren(); (limits.length ? limits : [""]).forEach(add); },
    read: () => all.map((one) => one.control.value.trim()).filter((limit, index, every) => limit || every.length === 1),
    fields: () => all,
  };
}

// The form of `rule`; `changed` is called on every edit.
export function ruleForm(rule, changed) {
  let is_whole = false;
  let base = rule;
  const limits = limitList(changed);
  const fields = {
    name: field("Name", text({ name: "name" })),
    description: field("Description", text({ name: "description" }), "The purpose of the rule."),
    key: field("Key (what requests are counted by)", text({ name: "key", placeholder: "user:{user}" }), "Attribute names in braces; the rule matches only requests that have them."),
    when: field("Conditions (JSON)", h("textarea", { name: "when", rows: "3", spellcheck: "false" }), 'Such as {"plan": "free", "ip": {"not_in": ["10.0.0.0/8"]}}. Leave empty to match every request.'),
    mode: field("Mode", select(MODES)),
    algorithm: field("Algorithm", select(ALGORITHMS)),
    on_store_failure: field("If the store is unavailable", select(FAILURES)),
    priority: field("Priority", text({ type: "number", name: "priority" })),
    zone: field("Time zone of calendar limits", text({ name: "zone", placeholder: "UTC" }), "Such as Europe/Berlin."),
    anchor: field("Calendar months begin on day", text({ type: "number", name: "anchor", min: "1", max: "31", placeholder: "1" }), "In a shorter month, on its last day."),
    week_starts: field("Calendar weeks begin on", select(WEEKDAYS)),
  };
  const whole = field("The whole rule (JSON)", h("textarea", { name: "whole", rows: "18", spellcheck: "false" }), "Every field of a rule file, including scope, domain, strict and lease.");
  for (const one of [...Object.values(fields), whole]) one.control.addEventListener("input", changed);

  function write(from) {
    base = from;
    for (const name of ["name", "description", "key"]) fields[name].control.value = from[name] ?? "";
    for (const name of ["mode", "algorithm", "on_store_failure", "priority", "zone", "anchor", "week_starts"]) fields[name].control.value = from[name] ?? USUAL[name];
    fields.when.control.value = Object.keys(from.when ?? {}).length ? JSON.stringify(from.when) : "";
    limits.write(from.limits ?? []);
    whole.control.value = JSON.stringify(from, null, 2);
  }

  function parsed(one, source) {
    try {
      return JSON.parse(source);
    } catch (error) {
      setFieldError(one, `Invalid JSON: ${error.message}`);
      return null;
    }
  }

  // The rule in the form; null if a JSON field is invalid.
  function read() {
    if (is_whole) return parsed(whole, whole.control.value);
    const source = fields.when.control.value.trim();
    const when = source ? parsed(fields.when, source) : {};
    if (when === null) return null;
    const value = (name) => fields[name].control.value.trim();
    // What is no number is left to the server, which says so.
    const number = (name) => (Number.isNaN(Number(value(name))) ? value(name) : value(name) && Number(value(name)));
    const entered = { name: value("name"), description: value("description"), key: value("key"), when, limits: limits.read(),
      mode: value("mode"), algorithm: value("algorithm"), on_store_failure: value("on_store_failure"), priority: number("priority") || 0,
      zone: value("zone"), anchor: number("anchor"), week_starts: value("week_starts") };
    const all = { ...base, ...entered };
    if (all.algorithm !== "sliding_window") delete all.strict;
    return Object.fromEntries(Object.entries(all).filter(([name, content]) =>
      content !== USUAL[name] && !(name === "when" && typeof content === "object" && !Object.keys(content).length)));
  }

  const parts = h("div", { class: "stack" }, h("div", { class: "fields" }, fields.name.node, fields.description.node), fields.key.node, fields.when.node, limits.node,
    h("div", { class: "fields" }, fields.mode.node, fields.algorithm.node, fields.on_store_failure.node, fields.priority.node),
    h("div", { class: "fields" }, fields.zone.node, fields.anchor.node, fields.week_starts.node));
  whole.node.hidden = true;
  const toggle = buttonGroup("Edit as", [["form", "Form"], ["json", "JSON"]], "form", (value) => {
    const now = read();
    if (now !== null) write(now);
    is_whole = value === "json";
    whole.node.hidden = !is_whole;
    parts.hidden = is_whole;
  });
  write(rule);

  function clear() {
    for (const one of [...Object.values(fields), ...limits.fields(), whole]) setFieldError(one, "");
  }

  return {
    node: h("div", { class: "stack" }, h("div", null, toggle), parts, whole.node),
    read, write, clear,
    // Shows an error at its field; returns false if there is no such field.
    showError(name, message) {
      const place = name?.startsWith("limits.") ? limits.fields()[Number(name.slice(7))] : name === "limits" ? limits.fields()[0] : fields[name];
      const one = is_whole ? whole : place;
      if (one) setFieldError(one, message);
      return Boolean(one);
    },
  };
}
