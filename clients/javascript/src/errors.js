/**
 * Errors. A denied request is an answer, not an error, except in limited functions,
 * whose callers receive no answer.
 */

/** Any error of this package. */
export class CheckdamError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/**
 * The server did not answer in time, or did not answer as checkdam does.
 * Whether the request was charged is unknown, so it is never sent again.
 */
export class Unreachable extends CheckdamError {}

/** The server did not accept the request; nothing was charged. */
export class Refused extends CheckdamError {
  constructor(status, detail, field) {
    super(detail);
    this.status = status;
    this.detail = detail;
    this.field = field;
  }
}

/** A call of a limited function was denied; the function was not called. */
export class Limited extends CheckdamError {
  constructor(answer) {
    super(answer.detail ?? "denied");
    this.answer = answer;
  }
}

/** As many calls wait for their turn as may wait. */
export class QueueFull extends CheckdamError {}

/** A call would have to wait longer than its caller allows; it was not sent. */
export class WaitTooLong extends CheckdamError {
  constructor(waitMs, waitMaxMs) {
    super(`the API asks to wait ${Math.ceil(waitMs)} ms: at most ${waitMaxMs} ms are allowed`);
    this.waitMs = waitMs;
  }
}
