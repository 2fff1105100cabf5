/** Functions that ask before they run. */

import { Limited } from "./errors.js";

/** The default bound on how long a request is held back. */
export const DELAY_MAX_MS = 10_000;

/** The longest that a timer can be set to. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * A function that is charged before each call.
 *
 *     const search = limited(client, (user) => ({ user }), async (user) => …);
 *
 * `attributes` and `cost` may be functions of the call's own arguments. A denied
 * call throws `Limited` and does not run. What a leaky bucket delays waits, at
 * most `delayMaxMs`; beyond that it is given back and denied.
 */
export function limited(client, attributes, call, { cost = 1, domain, delayMaxMs = DELAY_MAX_MS } = {}) {
  return async function limitedCall(...args) {
    const asked = typeof attributes === "function" ? await attributes(...args) : attributes;
    const charged = typeof cost === "function" ? await cost(...args) : cost;
    await admit(client, asked, { cost: charged, domain }, delayMaxMs);
    return call.apply(this, args);
  };
}

/** Charges a request and waits as long as it is to be held back. */
export async function admit(client, attributes, options, delayMaxMs) {
  let answer = await client.check(attributes, options);
  if (answer.allowed && answer.delayMs > delayMaxMs) {
    await client.refund(attributes, options);
    answer = heldTooLong(answer, delayMaxMs);
  }
  if (!answer.allowed) throw new Limited(answer);
  if (answer.delayMs > 0) await sleep(answer.delayMs);
  return answer;
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, Math.min(ms, TIMER_MAX_MS)));
}

/** A delay that is longer than anybody waits, as a denial that says when it will be short enough. */
function heldTooLong(answer, delayMaxMs) {
  const retryAfterMs = answer.delayMs - delayMaxMs;
  return {
    ...answer,
    allowed: false,
    status: 429,
    retryAfterMs,
    delayMs: 0,
    kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "Request cannot be satisfied as assigned quota has been exceeded",
    detail: `the queue is ${answer.delayMs} ms long: try again in ${retryAfterMs} ms`,
    headers: { ...answer.headers, "retry-after": String(Math.ceil(retryAfterMs / 1000)) },
  };
}
