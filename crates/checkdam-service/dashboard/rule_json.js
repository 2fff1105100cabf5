// Writes a rule as text for the server, and finds the field that a server error refers
// to.

import { sentence } from "./format.js";

// Fields of the database row, which are not part of the rule.
const OF_THE_ROW = ["id", "version", "created_at", "updated_at"];

export const withoutRowFields = (rule) => Object.fromEntries(Object.entries(rule).filter(([name]) => !OF_THE_ROW.includes(name)));

// The rule as JSON with one field, and one limit, to a line: the server names the
// line of an error, and `fields` has the field that is on that line.
export function toLines(rule) {
  const lines = ["{"];
  const fields = [null];
  const put = (text, name) => { lines.push(text); fields.push(name); };
  const entries = Object.entries(rule);
  entries.forEach(([name, value], index) => {
    const comma = index < entries.length - 1 ? "," : "";
    if (name === "limits" && Array.isArray(value) && value.length) {
      put(`"limits": [`, "limits");
      value.forEach((limit, place) => put(`${JSON.stringify(limit)}${place < value.length - 1 ? "," : ""}`, `limits.${place}`));
      put(`]${comma}`, "limits");
    } else put(`${JSON.stringify(name)}: ${JSON.stringify(value)}${comma}`, name);
  });
  lines.push("}");
  return { text: lines.join("\n"), fields };
}

// Errors without a line number, and the fields that they are about.
const FIELD_PATTERNS = [[/the name|is called|cannot be called|name is taken|exists/, "name"], [/the key/, "key"], [/limits? |quota|burst/, "limits.0"]];

// The field that an error is about, and the message without line and column, which
// refer to text that the user never saw.
export function locateError(message, fields) {
  const place = /^line (\d+), column \d+: /.exec(message);
  const text = message.replace(/^line \d+, column \d+: /, "").replace(/^rule "(?:[^"\\]|\\.)*": /, "");
  const named = place ? fields[Number(place[1]) - 1] : FIELD_PATTERNS.find(([pattern]) => pattern.test(text))?.[1];
  return { name: named ?? null, text: sentence(text) };
}
