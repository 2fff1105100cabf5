/** A middleware for Express, Connect, and plain node:http. */

import { problem, unreachableAnswer } from "./answer.js";
import { Limited, Refused, Unreachable } from "./errors.js";
import { admit, DELAY_MAX_MS } from "./limited.js";
import { requestAttributes } from "./origin.js";

/**
 * Asks checkdam before the next handler is called.
 *
 *     app.use(rateLimit({ client: new Client(), attributes: (req) => ({ user: req.user.id }) }));
 *
 * A denied request gets the status, the headers and the problem details that
 * checkdam answered; the next handler is not called. Every other response carries
 * the rate-limit headers. What a leaky bucket delays waits, at most `delayMaxMs`.
 * `attributes` is a function of the request, by default `requestAttributes`; where
 * it returns null the request is not limited. With a client that throws when the
 * server is unreachable, requests are answered with 503.
 */
export function rateLimit({ client, attributes = requestAttributes, cost = 1, domain, delayMaxMs = DELAY_MAX_MS }) {
  return async function rateLimited(request, response, next) {
    let answer = null;
    try {
      const asked = await attributes(request);
      if (asked) {
        const charged = typeof cost === "function" ? await cost(request) : cost;
        answer = await admit(client, asked, { cost: charged, domain }, delayMaxMs);
      }
    } catch (error) {
      const denied = denial(error);
      if (isAnswered(response)) return;
      if (denied) deny(response, denied);
      else next(error);
      return;
    }
    if (isAnswered(response)) return;
    pass(response, answer?.headers ?? {});
    next();
  };
}

/** The answer to a request that does not pass; null for the application's own mistakes, which stay errors. */
function denial(error) {
  if (error instanceof Limited) return error.answer;
  if (error instanceof Unreachable) return unreachableAnswer("closed", error);
  // Such as a path that is too long.
  if (error instanceof Refused && error.field?.startsWith("attributes")) {
    return { status: 400, title: "Bad Request", detail: error.detail, violatedPolicies: [], retryAfterMs: 0, headers: {} };
  }
  return null;
}

/** Whether somebody else has answered meanwhile, or the client has hung up. */
function isAnswered(response) {
  return response.destroyed || response.headersSent || response.writableEnded;
}

function deny(response, denied) {
  response.statusCode = denied.status;
  pass(response, denied.headers);
  response.setHeader("content-type", "application/problem+json");
  response.end(JSON.stringify(problem(denied)));
}

function pass(response, headers) {
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}
