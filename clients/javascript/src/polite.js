/**
 * Calls limited APIs without running into their limits.
 *
 * Calls take turns in the order they came; a call that is refused keeps its place.
 */

import { QueueFull, WaitTooLong } from "./errors.js";
import { Pace } from "./pace.js";

/** The longest that a timer can be set to. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * A fetch that queues calls, slows down before the limit and retries when the server permits.
 *
 *     const fetch = polite(globalThis.fetch);
 *     const response = await fetch("https://api.example.com/items");
 *
 * One for each API, or for each of its limits if they are separate. A request that
 * is refused with 429 or 503 is sent again, `attemptsMax` times in all; after that,
 * or if the server asks to wait longer than `waitMaxMs`, its response is returned.
 * Errors are passed on, and nothing is repeated after one; nor is a request whose
 * body is a stream. Throws `QueueFull` or `WaitTooLong` without sending anything.
 */
export function polite(
  fetch = globalThis.fetch,
  { waitMaxMs = 60_000, queueMax = 1000, attemptsMax = 5, pace = new Pace() } = {},
) {
  const turns = new Turns(pace, waitMaxMs, queueMax);
  return async function politeFetch(input, init) {
    const isRequest = typeof Request !== "undefined" && input instanceof Request;
    const isStream = typeof ReadableStream !== "undefined" && init?.body instanceof ReadableStream;
    const signal = init?.signal ?? (isRequest ? input.signal : undefined);
    const turn = turns.draw();
    for (let attempt = 1; ; attempt += 1) {
      await turns.take(turn, signal);
      const isLast = isStream || attempt >= attemptsMax;
      let response;
      try {
        response = await fetch(isRequest && !isLast ? input.clone() : input, init);
      } catch (error) {
        turns.failed();
        throw error;
      }
      if (!turns.answered(turn, response, isLast)) return response;
      // The connection can be used again only once the body is read or cancelled.
      await response.body?.cancel().catch(() => {});
    }
  };
}

/** A queue of callers in the order of their arrival. */
class Turns {
  #pace;
  #waitMaxMs;
  #queueMax;
  #queue = [];
  #drawn = 0;

  constructor(pace, waitMaxMs, queueMax) {
    this.#pace = pace;
    this.#waitMaxMs = waitMaxMs;
    this.#queueMax = queueMax;
  }

  draw() {
    if (this.#queue.length >= this.#queueMax) {
      throw new QueueFull(`${this.#queue.length} calls wait already: at most ${this.#queueMax} may`);
    }
    this.#drawn += 1;
    return { number: this.#drawn, wake: () => {} };
  }

  /** Resolves when it is this one's turn, and counts its request as sent. */
  async take(turn, signal) {
    this.#enqueue(turn);
    const abort = () => turn.wake();
    signal?.addEventListener("abort", abort);
    try {
      signal?.throwIfAborted();
      for (let waitMs = this.#trySend(turn); waitMs !== 0; waitMs = this.#trySend(turn)) {
        await woken(turn, waitMs);
        signal?.throwIfAborted();
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#queue.splice(this.#queue.indexOf(turn), 1);
      this.#wakeFirst();
    }
  }

  /**
   * Records a response; returns whether the request is to be sent again. If so, it is back
   * in the queue before another caller is woken.
   */
  answered(turn, response, isLast) {
    const refused = this.#pace.answered(performance.now() / 1000, Date.now() / 1000, response.status, response.headers);
    const waitMs = (this.#pace.wait(performance.now() / 1000) ?? 0) * 1000;
    const isAgain = refused && !isLast && waitMs <= this.#waitMaxMs;
    if (isAgain) this.#enqueue(turn);
    this.#wakeFirst();
    return isAgain;
  }

  failed() {
    this.#pace.failed();
    this.#wakeFirst();
  }

  /** 0 if it is sent, else how long to wait before asking again; null for until woken. */
  #trySend(turn) {
    if (this.#queue[0] !== turn) return null;
    const now = performance.now() / 1000;
    const wait = this.#pace.wait(now);
    if (wait === null) return null;
    if (wait === 0) {
      this.#pace.sent(now);
      return 0;
    }
    if (wait * 1000 > this.#waitMaxMs) throw new WaitTooLong(wait * 1000, this.#waitMaxMs);
    return wait * 1000;
  }

  #enqueue(turn) {
    if (this.#queue.includes(turn)) return;
    const behind = this.#queue.findIndex(({ number }) => number > turn.number);
    this.#queue.splice(behind < 0 ? this.#queue.length : behind, 0, turn);
  }

  #wakeFirst() {
    this.#queue[0]?.wake();
  }
}

/** Resolves when the turn is woken, or after that time. */
function woken(turn, waitMs) {
  return new Promise((resolve) => {
    const timer = waitMs === null ? undefined : setTimeout(resolve, Math.min(waitMs, TIMER_MAX_MS));
    turn.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
