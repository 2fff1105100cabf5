/**
 * Client of the checkdam rate limiter, and a polite fetch for any limited API.
 *
 * Needs nothing but `fetch`: it runs in Node 18 and later, Deno and browsers. Only the
 * client's option `tls` needs Node.
 */

export { Client } from "./client.js";
export { CheckdamError, Limited, QueueFull, Refused, Unreachable, WaitTooLong } from "./errors.js";
export { limited } from "./limited.js";
export { rateLimit } from "./middleware.js";
export { AmbiguousPath, requestAttributes } from "./normalize.js";
export { Pace } from "./pace.js";
export { polite } from "./polite.js";
