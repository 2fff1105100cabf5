/** A middleware for Express, Connect, and plain node:http. */

import { problem, unreachableAnswer } from "./answer.js";
import { Limited, Refused, Unreachable } from "./errors.js";
import { admit, DELAY_MAX_MS } from "./limited.js";
import { AmbiguousPath, pathForms, requestAttributes } from "./normalize.js";

/**
 * Asks checkdam before the next handler is called.
 *
 *     app.use(rateLimit({ client: new Client(), attributes: (req) => ({ user: req.user.id }) }));
 *
 * A denied request gets the status, the headers and the problem details that
 * checkdam answered; the next handler is not called. Every other response carries
 * the rate-limit headers. What a leaky bucket delays waits, at most `delayMaxMs`.
 * `attributes` is a function of the request, by default `requestAttributes` with
 * `paths`; where it returns null the request is not limited, and where it throws
 * AmbiguousPath the request is answered with 400. With a client that throws when the
 * server is unreachable, requests are answered with 503.
 */
export function rateLimit({ client, attributes, cost = 1, domain, delayMaxMs = DELAY_MAX_MS, paths }) {
  const forms = pathForms(paths);
  const read = attributes ?? ((request) => requestAttributes(request, forms));
  return async function rateLimited(request, response, next) {
    let answer = null;
    try {
      const asked = await read(request);
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
  // Such as a path that is too long, or can be read in two ways.
  const isAmbiguous = error instanceof AmbiguousPath;
  if (isAmbiguous || (error instanceof Refused && error.field?.startsWith("attributes"))) {
    const detail = isAmbiguous ? error.message : error.detail;
    return { status: 400, title: "Bad Request", detail, violatedPolicies: [], retryAfterMs: 0, headers: {} };
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
