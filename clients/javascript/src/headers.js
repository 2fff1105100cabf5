/**
 * Parses the rate-limit headers of any API.
 *
 * Reads `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11),
 * else `X-RateLimit-*` or `RateLimit-Limit` and its like, and `Retry-After`. What
 * does not parse is taken as not sent. Times are in seconds.
 */

/** Longer headers are not read. */
const LENGTH_MAX = 8192;

/** Resets beyond this are points in time, in Unix seconds; before, they are seconds from now. */
const UNIX_SECONDS_MIN = 1_000_000_000;

const STRING = String.raw`"(?:[^"\\]|\\["\\])*"`;
const NAME = new RegExp(String.raw`[ \t]*(${STRING}|[A-Za-z*][^\s;,"]*)`, "y");
const PARAMETER = new RegExp(String.raw` *; *([a-z*][a-z0-9_.*-]*)(?:=(${STRING}|:[A-Za-z0-9+/=]*:|[^\s;,"]+))?`, "y");
const NEXT = /[ \t]*(,|$)/y;
const INTEGER = /^[0-9]{1,15}$/;

/** Where the caller stands with each limit: `{remaining, resetAfter, limit, window}`, undefined where not stated. */
export function standings(headers, nowUnix) {
  const policies = new Map(fields(headers.get("ratelimit-policy")));
  const found = [];
  for (const [name, { r, t }] of fields(headers.get("ratelimit"))) {
    const { q, w } = policies.get(name) ?? {};
    if (r !== undefined) found.push({ remaining: r, resetAfter: t, limit: q, window: w });
  }
  return found.length > 0 ? found : customary(headers, nowUnix);
}

/** How long the server asks to wait: given in seconds, or as a date. */
export function retryAfter(headers, nowUnix) {
  const text = (headers.get("retry-after") ?? "").trim();
  if (INTEGER.test(text)) return Number(text);
  const date = dateUnix(text);
  return date === undefined ? undefined : Math.max(0, date - serverUnix(headers, nowUnix));
}

/** The server's clock, which its dates are by; ours if the response has no date. */
function serverUnix(headers, nowUnix) {
  return dateUnix(headers.get("date") ?? "") ?? nowUnix;
}

function customary(headers, nowUnix) {
  for (const prefix of ["x-ratelimit-", "ratelimit-"]) {
    const [remaining, limit, reset] = ["remaining", "limit", "reset"].map((name) => integer(headers.get(prefix + name)));
    if (remaining === undefined) continue;
    const isTime = reset !== undefined && reset >= UNIX_SECONDS_MIN;
    const resetAfter = isTime ? Math.max(0, reset - serverUnix(headers, nowUnix)) : reset;
    return [{ remaining, resetAfter, limit, window: undefined }];
  }
  return [];
}

function integer(text) {
  return text && INTEGER.test(text.trim()) ? Number(text) : undefined;
}

function dateUnix(text) {
  // Date.parse takes nearly anything, numbers too: dates of HTTP begin with a weekday.
  if (!/^[A-Z][a-z]+,? /.test(text) || text.length > 64) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms / 1000;
}

/** A structured list of names (RFC 9651) with their parameters that are whole numbers. */
function fields(text) {
  const found = [];
  if (!text?.trim() || text.length > LENGTH_MAX) return found;
  let at = 0;
  const match = (pattern) => {
    pattern.lastIndex = at;
    const matched = pattern.exec(text);
    if (matched) at = pattern.lastIndex;
    return matched;
  };
  while (at < text.length) {
    const name = match(NAME);
    if (!name) return [];
    const values = {};
    for (let parameter = match(PARAMETER); parameter; parameter = match(PARAMETER)) {
      const [, key, value] = parameter;
      if (value !== undefined && INTEGER.test(value)) values[key] = Number(value);
    }
    const next = match(NEXT);
    if (!next) return [];
    found.push([name[1], values]);
    if (!next[1]) break;
  }
  return found;
}
