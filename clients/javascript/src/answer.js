/** Requests and answers as JSON. Does no I/O. */

import { Refused, Unreachable } from "./errors.js";

/** Headers of an answer that its receiver may pass on. */
const PASSED_ON = [
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "ratelimit-policy",
  "ratelimit",
  "retry-after",
];

/** Checks types only: the server validates values. */
export function requestJson(attributes, { cost = 1, domain, ...unknown } = {}) {
  for (const name of Object.keys(unknown)) throw new TypeError(`there is no option ${show(name)}`);
  if (attributes === null || typeof attributes !== "object" || Array.isArray(attributes)) {
    throw new TypeError(`attributes is ${show(attributes)}: it must be an object such as {user: "42"}`);
  }
  if (!Number.isSafeInteger(cost)) throw new TypeError(`cost is ${show(cost)}: it must be a whole number`);
  const sent = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value !== "string" && !Number.isSafeInteger(value)) {
      throw new TypeError(`the attribute ${show(name)} is ${show(value)}: it must be a string; leave out what is unknown`);
    }
    Object.defineProperty(sent, name, { value: String(value), enumerable: true });
  }
  return { attributes: sent, cost, ...(domain === undefined ? {} : { domain }) };
}

export function batchJson(requests) {
  const sent = requests.map(({ attributes, ...options }, index) => {
    try {
      return requestJson(attributes, options);
    } catch (error) {
      throw new TypeError(`requests[${index}]: ${error.message}`);
    }
  });
  return { requests: sent };
}

/** The answer in a response whose body is `text`. */
export function readAnswer(status, headers, text) {
  const value = readObject(status, text);
  if (!("allowed" in value)) throw refusal(status, value);
  const passedOn = {};
  for (const name of PASSED_ON) {
    const header = headers.get(name);
    if (header !== null) passedOn[name] = header;
  }
  return answer(value, status, passedOn);
}

/** The answers to `count` requests. */
export function readBatch(status, text, count) {
  const value = readObject(status, text);
  if (!Array.isArray(value.results)) throw refusal(status, value);
  if (value.results.length !== count || !value.results.every((result) => typeof result?.status === "number")) {
    throw new Unreachable(`the answer is not one of checkdam's: it has no results for ${count} requests`);
  }
  return value.results.map((result) => answer(result, result.status, {}));
}

/** What stands in for the answer of a server that cannot be reached. */
export function unreachableAnswer(onUnreachable, error) {
  if (onUnreachable === "raise") throw error;
  const none = {
    limit: null, remaining: null, retryAfterMs: 0, resetAfterMs: 0, delayMs: 0, cutOff: 0, violated: null, ban: null,
    decidedBy: "client", tiers: [], kind: null, title: null, detail: null, violatedPolicies: [], headers: {},
  };
  if (onUnreachable === "open") return { ...none, allowed: true, status: 200 };
  return {
    ...none,
    allowed: false,
    status: 503,
    retryAfterMs: 1000,
    kind: "urn:checkdam:problem:unreachable",
    title: "The rate limiter cannot be reached",
    detail: "the rate limiter cannot be reached: try again later",
    headers: { "retry-after": "1" },
  };
}

/**
 * A denial as problem details (RFC 9457) for the client. Tiers and bans are left out:
 * they may name other subjects.
 */
export function problem(denied) {
  return {
    type: denied.kind ?? "about:blank",
    title: denied.title ?? "Too Many Requests",
    status: denied.status,
    detail: denied.status === 403 ? "the request is banned" : (denied.detail ?? ""),
    "violated-policies": denied.violatedPolicies,
    retry_after_ms: denied.retryAfterMs,
  };
}

function readObject(status, text) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // What is no JSON is no object either.
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Unreachable(`the answer is no JSON object (status ${status}): is it checkdam that listens there?`);
  }
  return value;
}

function answer(value, status, headers) {
  const areTiers = Array.isArray(value.tiers) && value.tiers.every((tier) => tier !== null && typeof tier === "object");
  const isWait = value.retry_after_ms === null || typeof value.retry_after_ms === "number";
  if (!areTiers || !isWait || typeof value.allowed !== "boolean") {
    throw new Unreachable("the answer is not one of checkdam's: it has no tiers, no retry_after_ms or no allowed");
  }
  return {
    allowed: value.allowed,
    status,
    limit: value.limit,
    remaining: value.remaining,
    retryAfterMs: value.retry_after_ms,
    resetAfterMs: value.reset_after_ms,
    delayMs: value.delay_ms ?? 0,
    cutOff: value.cut_off ?? 0,
    violated: value.violated,
    ban: value.ban ?? null,
    decidedBy: value.decided_by,
    tiers: value.tiers.map(tier),
    kind: value.type ?? null,
    title: value.title ?? null,
    detail: value.detail ?? null,
    violatedPolicies: value["violated-policies"] ?? [],
    headers,
  };
}

function tier(value) {
  return {
    rule: value.rule,
    scope: value.scope,
    subject: value.subject,
    limitName: value.limit_name ?? "",
    allowed: value.allowed,
    limit: value.limit,
    remaining: value.remaining,
    debt: value.debt ?? 0,
    retryAfterMs: value.retry_after_ms,
    resetAfterMs: value.reset_after_ms,
    shadow: value.shadow ?? false,
  };
}

function refusal(status, value) {
  const detail = String(value.detail ?? value.title ?? `status ${status}`);
  // 408: the body did not arrive in time, which is not an error of the request.
  if (status >= 400 && status < 500 && status !== 408) return new Refused(status, detail, value.field ?? null);
  return new Unreachable(`the server answered with status ${status}: ${detail}`);
}

function show(value) {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}
