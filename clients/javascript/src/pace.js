/**
 * When a polite caller may send its next request.
 *
 * The rules are in clients/README.md and, as data that the clients of every
 * language are tested by, in clients/polite-cases.json. This module does no I/O
 * and reads no clock: times are in seconds from any beginning and are given by
 * the caller.
 */

import { retryAfter, standings } from "./headers.js";

/** Statuses that ask to retry later. */
const REFUSALS = [429, 503];

/** The largest factor by which repeated refusals lengthen the intervals. */
const SLOWNESS_MAX = 16;

/** What remains of that factor after each answer that is no refusal. */
const RECOVERY = 0.95;

/** Follows the answers of one API and says how long to wait before the next request. */
export class Pace {
  #backoffFirst;
  #backoffMax;
  #random;
  #standings = [];
  #standingsAt = 0;
  #sentAt = -Infinity;
  #blockedUntil = -Infinity;
  /** Whether the last answer was no refusal, so that several may be under way. */
  #isOpen = false;
  #pending = 0;
  #refusals = 0;
  #slowness = 1;

  constructor({ backoffFirst = 0.5, backoffMax = 30, random = Math.random } = {}) {
    this.#backoffFirst = backoffFirst;
    this.#backoffMax = backoffMax;
    this.#random = random;
  }

  /** How long until the next request may be sent: 0 for at once, null for not before an answer arrives. */
  wait(now) {
    if (this.#pending > 0 && !this.#isOpen) return null;
    let at = this.#blockedUntil;
    for (const standing of this.#standings) {
      const earliest = this.#earliest(standing);
      if (earliest === null) return null;
      at = Math.max(at, earliest);
    }
    return Math.max(0, at - now);
  }

  /** A request is sent. */
  sent(now) {
    this.#sentAt = now;
    this.#pending += 1;
  }

  /** A request ended without an answer. */
  failed() {
    this.#pending -= 1;
  }

  /** A request was answered; returns whether it was refused and may be sent again. */
  answered(now, nowUnix, status, headers) {
    this.#pending -= 1;
    const found = standings(headers, nowUnix);
    if (found.length > 0 || status === 429) {
      this.#standings = found;
      this.#standingsAt = now;
    }
    this.#isOpen = !REFUSALS.includes(status);
    if (this.#isOpen) {
      this.#refusals = 0;
      this.#slowness = Math.max(1, this.#slowness * RECOVERY);
      return false;
    }
    this.#refusals += 1;
    if (status === 429) this.#slowness = Math.min(SLOWNESS_MAX, this.#slowness * 2);
    this.#blockedUntil = Math.max(this.#blockedUntil, now + this.#pause(headers, nowUnix));
    return true;
  }

  /** How long to pause after a refusal. */
  #pause(headers, nowUnix) {
    const resets = this.#standings.filter((standing) => standing.remaining === 0).map((standing) => standing.resetAfter ?? 0);
    const asked = retryAfter(headers, nowUnix) || Math.max(0, ...resets);
    // A tenth more at most, so that callers that were refused together do not retry together.
    if (asked > 0) return asked * (1 + 0.1 * this.#random());
    const backoff = this.#backoffFirst * 2 ** Math.min(this.#refusals - 1, 32);
    return this.#random() * Math.min(this.#backoffMax, backoff);
  }

  /** When one limit has room for the next request; null if that depends on the next answer. */
  #earliest(standing) {
    const { remaining, resetAfter, limit, window } = standing;
    const left = remaining - this.#pending;
    // The pace that never exceeds the limit: the time for one request.
    const interval = limit && window ? window / limit : undefined;
    if (left > 0) {
      if (limit && left + 1 >= limit) return this.#sentAt;
      const spread = resetAfter === undefined ? undefined : resetAfter / left;
      const spacings = [interval, spread].filter((spacing) => spacing !== undefined);
      const spacing = spacings.length > 0 ? Math.min(...spacings) : 0;
      return this.#sentAt + spacing * haste(standing, left) * this.#slowness;
    }
    const resetAt = this.#standingsAt + (resetAfter ?? 0);
    // Nothing is left, and how fast it comes back is not known: one at a time after the reset.
    if (interval === undefined) return this.#pending > 0 ? null : resetAt;
    const earliest = Math.max(this.#sentAt, this.#standingsAt) + interval * this.#slowness;
    const isWindow = remaining === 0 && resetAfter !== undefined && resetAfter < window;
    return isWindow ? Math.max(earliest, resetAt) : earliest;
  }
}

/**
 * A bucket says that it will be full when its rate has filled it; it is used down
 * to its half, which is kept for others and for stalls. A window says when it
 * ends, however much is left: it is not hastened.
 */
function haste({ remaining, resetAfter, limit, window }, left) {
  if (!limit || !window || resetAfter === undefined) return 1;
  const fullAfter = Math.ceil(((limit - remaining) * window) / limit);
  return resetAfter <= fullAfter ? Math.min(1, 2 * (1 - left / limit)) : 1;
}
