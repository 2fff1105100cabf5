// Numbers, times and rules in words.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rough = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// The outcomes of a request, with their labels.
export const OUTCOMES = {
  allowed: "Allowed", limited: "Denied", banned: "Banned", unavailable: "Store unavailable", shadow: "Would be denied (shadow)",
};

// Those that did not pass, in the order in which charts stack them.
export const NOT_ALLOWED = ["limited", "banned", "unavailable"];

// Converts counts of the API, where `limited` includes banned and unavailable, so that
// each request has one outcome. Accepts numbers and lists of them.
export function byOutcome(counts) {
  const others = (limited, banned = 0, unavailable = 0) => Math.max(limited - banned - unavailable, 0);
  const { limited, banned, unavailable } = counts;
  if (limited === undefined) return counts;
  const own = Array.isArray(limited) ? limited.map((value, index) => others(value, banned?.[index], unavailable?.[index])) : others(limited, banned, unavailable);
  return { ...counts, limited: own };
}

export const sum = (values) => values.reduce((all, value) => all + value, 0);

export const count = (number) => whole.format(number ?? 0);

// A number in compact form.
export const compact = (number) => (Math.abs(number) < 10_000 ? perhapsTenths(number) : rough.format(number));

const perhapsTenths = (number) => (Number.isInteger(number) || Math.abs(number) >= 100 ? whole.format(number) : number.toFixed(1));

export function percent(part, all) {
  if (!all) return "0 %";
  const share = (100 * part) / all;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

export const timeOfDay = (unix_s) => new Date(unix_s * 1000).toLocaleTimeString("en-GB");
export const hourAndMinute = (unix_s) => timeOfDay(unix_s).slice(0, 5);

export function dateTime(text_or_ms) {
  const date = new Date(text_or_ms);
  return Number.isNaN(date.getTime()) ? String(text_or_ms) : `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

// A length of time: the two largest units are enough.
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const units = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const parts = [];
  let left = Math.round(seconds);
  for (const [size, unit] of units) {
    if (left >= size && parts.length < 2) {
      parts.push(`${Math.floor(left / size)} ${unit}`);
      left %= size;
    } else if (parts.length > 0) break;
  }
  return parts.join(" ");
}

// A message of the server as a sentence.
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

const PERIODS = { ms: "millisecond", s: "second", m: "minute", h: "hour", d: "day", w: "week", month: "month", y: "year" };

// "10/s burst 50" as a sentence; what is written otherwise stays as it is.
export function limitInWords(limit) {
  const found = /^(\d+)\/(\w+)(?: burst (\d+))?$/.exec(limit);
  if (!found || !PERIODS[found[2]]) return limit;
  const burst = found[3] ? `, up to ${count(Number(found[3]))} at once` : "";
  return `${count(Number(found[1]))} ${found[2] === "h" ? "an" : "a"} ${PERIODS[found[2]]}${burst}`;
}

export const limitsInWords = (limits) => limits.map(limitInWords).join("; ");

function conditionInWords(name, test) {
  if (Array.isArray(test)) return `${name} is ${test.join(" or ")}`;
  if (typeof test !== "object" || test === null) return `${name} is ${test}`;
  const verbs = { in: "is one of", not_in: "is none of", not: "is not", equals: "is exactly" };
  return Object.entries(test).map(([verb, value]) => {
    if (verb === "present") return `${name} is ${value ? "present" : "absent"}`;
    if (verb === "all") return value.map((one) => conditionInWords(name, one)).join(" and ");
    return `${name} ${verbs[verb] ?? verb} ${[value].flat().join(", ")}`;
  }).join(" and ");
}

export function whenInWords(when) {
  const parts = Object.entries(when ?? {}).map(([name, test]) => conditionInWords(name, test));
  return parts.length ? parts.join(" and ") : "every request";
}

// What a request must have to be charged to `subject` by `rule`, as far as the
// rule determines it: the key gives its attributes, plain conditions give the others.
export function attributesOf(rule, subject) {
  const names = [];
  const pattern = rule.key.split(/(\{[^}]*\})/).map((part) => {
    if (!part.startsWith("{")) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    names.push(part.slice(1, -1));
    return "(.+?)";
  }).join("");
  const found = new RegExp(`^${pattern}$`).exec(subject);
  const attributes = {};
  for (const [name, test] of Object.entries(rule.when ?? {})) {
    const value = Array.isArray(test) ? test[0] : test?.equals ?? test?.in?.[0] ?? test;
    if (typeof value === "string" && !/[*{]|\/\d+$/.test(value)) attributes[name] = value;
  }
  names.forEach((name, index) => { if (found) attributes[name] = found[index + 1]; });
  return attributes;
}
