/** The client. */

import { batchJson, readAnswer, readBatch, requestJson, unreachableAnswer } from "./answer.js";
import { Unreachable } from "./errors.js";
import { checkTls, explainTls } from "./tls.js";

const POLICIES = ["raise", "open", "closed"];

/**
 * Asks a checkdam server. Connections are kept open by `fetch`.
 *
 *     const client = new Client("http://127.0.0.1:8080", { timeoutMs: 200, onUnreachable: "open" });
 *     const { allowed, remaining, retryAfterMs } = await client.check({ user: "42", plan: "free" });
 */
export class Client {
  #url;
  #timeoutMs;
  #onUnreachable;
  #headers;
  #fetch;
  #tls;
  #httpsFetch;

  /**
   * `timeoutMs` bounds a whole call. `onUnreachable` says what happens when there
   * is no answer: "raise" (default) throws `Unreachable`, "open" allows, "closed"
   * denies with status 503. `token` is the server's API token, if it has one; without
   * a valid one it answers with `Refused` (401). `fetch` is what is called instead of
   * the global one. `tls` has the `ca`, `cert`, `key` and `passphrase` of node:tls, in PEM,
   * for an https:// server; only in Node.
   */
  constructor(url = "http://127.0.0.1:8080", { timeoutMs = 1000, onUnreachable = "raise", token, fetch, tls } = {}) {
    let parsed = null;
    try {
      parsed = new URL(url);
    } catch {
      // What does not parse has no protocol that would do.
    }
    if (parsed?.protocol !== "http:" && parsed?.protocol !== "https:") {
      throw new TypeError(`${JSON.stringify(url)} is no address of a server: write it as http://127.0.0.1:8080`);
    }
    if (!POLICIES.includes(onUnreachable)) {
      throw new TypeError(`onUnreachable is ${JSON.stringify(onUnreachable)}: it must be one of ${POLICIES.join(", ")}`);
    }
    if (token !== undefined && !/^[!-~]+$/.test(token)) {
      throw new TypeError("the token is empty or has a character that no header can carry");
    }
    if (tls !== undefined) {
      checkTls(tls, parsed.protocol);
      if (fetch) throw new TypeError("tls and fetch are given: fetch has its own settings of TLS");
    }
    this.#headers = { "content-type": "application/json", ...(token !== undefined && { authorization: `Bearer ${token}` }) };
    this.#url = String(url).replace(/\/+$/, "");
    this.#timeoutMs = timeoutMs;
    this.#onUnreachable = onUnreachable;
    this.#fetch = fetch ?? ((...request) => globalThis.fetch(...request));
    this.#tls = tls;
  }

  /** Charges a request to every limit that applies, or to none. */
  check(attributes, options) {
    return this.#ask("/v1/check", attributes, options);
  }

  /**
   * Charges what was used to every limit that applies, whatever is left; never denied. Beyond
   * a limit its bucket is in debt, and nothing passes until that is paid back. `allowed` says
   * whether a request would pass now.
   */
  record(attributes, cost, options) {
    // A cost that is unknown is an error, and not a cost of 1.
    return this.#ask("/v1/record", attributes, { ...options, cost: cost ?? null });
  }

  /** Answers as `check` would, charging nothing; the status is always 200. */
  peek(attributes, options) {
    return this.#ask("/v1/peek", attributes, options);
  }

  /** Gives back a cost to every limit that applies. */
  refund(attributes, options) {
    return this.#ask("/v1/refund", attributes, options);
  }

  /** Forgets what is owed to every limit that applies. */
  reset(attributes, options) {
    return this.#ask("/v1/reset", attributes, options);
  }

  /** Charges several requests, each by itself, in their order: at most 256. */
  async checkBatch(requests) {
    const body = batchJson(requests);
    try {
      const [status, , text] = await this.#post("/v1/check/batch", body);
      return readBatch(status, text, requests.length);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return requests.map(() => unreachableAnswer(this.#onUnreachable, error));
    }
  }

  async #ask(path, attributes, options) {
    const body = requestJson(attributes, options);
    try {
      return readAnswer(...(await this.#post(path, body)));
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return unreachableAnswer(this.#onUnreachable, error);
    }
  }

  /** Loaded only where it is needed: browsers have no node:https. */
  #loadHttpsFetch() {
    this.#httpsFetch ??= import("#https-fetch").then(({ httpsFetch }) => httpsFetch(this.#tls));
    return this.#httpsFetch;
  }

  async #post(path, body) {
    const fetch = this.#tls ? await this.#loadHttpsFetch() : this.#fetch;
    try {
      const response = await fetch(this.#url + path, {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(body),
        redirect: "manual",
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
      return [response.status, response.headers, await response.text()];
    } catch (cause) {
      const late = cause?.name === "TimeoutError" ? ` within ${this.#timeoutMs} ms` : "";
      const reason = late ? "" : `: ${explainTls(cause?.cause ?? cause) ?? (cause?.cause?.message || cause?.message || cause)}`;
      throw new Unreachable(`${this.#url} did not answer${late}${reason}`, { cause });
    }
  }
}
