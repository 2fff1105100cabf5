/**
 * When a polite caller may send its next request.
 *
 * The rules are in clients/README.md and, as data that the clients of every
 * language are tested by, in clients/polite-cases.json. This module does no I/O
 * and reads no clock: times are in seconds from any beginning and are given by
 * the caller.
 */

import { retryAfter, standings } from "./headers.js";

/** Answers that ask to come again later. */
const REFUSALS = [429, 503];

/** How much slower than told a caller gets at most that is refused again and again. */
const SLOWNESS_MAX = 16;

/** What each answer that is no refusal leaves of that. */
const RECOVERY = 0.95;

/** Follows the answers of one API and says how long to wait before the next request. */
export class Pace {
  #backoffFirst;
  #backoffMax;
  #random;
  #told = [];
  #toldAt = 0;
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
    for (const told of this.#told) {
      const earliest = this.#earliest(told);
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

  /** A request was answered; tells whether it was refused and may be sent again. */
  answered(now, nowUnix, status, headers) {
    this.#pending -= 1;
    const told = standings(headers, nowUnix);
    if (told.length > 0 || status === 429) {
      this.#told = told;
      this.#toldAt = now;
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

  /** How long to leave a server alone that refused. */
  #pause(headers, nowUnix) {
    const resets = this.#told.filter((told) => told.remaining === 0).map((told) => told.resetAfter ?? 0);
    const asked = retryAfter(headers, nowUnix) || Math.max(0, ...resets);
    // A tenth more at most, so that those who were refused together do not come back together.
    if (asked > 0) return asked * (1 + 0.1 * this.#random());
    const backoff = this.#backoffFirst * 2 ** Math.min(this.#refusals - 1, 32);
    return this.#random() * Math.min(this.#backoffMax, backoff);
  }

  /** When one limit has room for the next request; null if only an answer can tell. */
  #earliest(told) {
    const { remaining, resetAfter, limit, window } = told;
    const left = remaining - this.#pending;
    // The pace that never exceeds the limit: the time for one request.
    const interval = limit && window ? window / limit : undefined;
    if (left > 0) {
      if (limit && left + 1 >= limit) return this.#sentAt;
      const spread = resetAfter === undefined ? undefined : resetAfter / left;
      const spacings = [interval, spread].filter((spacing) => spacing !== undefined);
      const spacing = spacings.length > 0 ? Math.min(...spacings) : 0;
      return this.#sentAt + spacing * haste(told, left) * this.#slowness;
    }
    const resetAt = this.#toldAt + (resetAfter ?? 0);
    // Nothing is left, and how fast it comes back is not known: one at a time after the reset.
    if (interval === undefined) return this.#pending > 0 ? null : resetAt;
    const earliest = Math.max(this.#sentAt, this.#toldAt) + interval * this.#slowness;
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
