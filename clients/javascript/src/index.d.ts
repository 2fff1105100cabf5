/** Attributes of a request. Whole numbers are sent as text. */
export type Attributes = Readonly<Record<string, string | number>>;

/** What happens when the server cannot be reached: throw, allow, or deny with status 503. */
export type OnUnreachable = "raise" | "open" | "closed";

export interface RequestOptions {
  /** How much to charge: a whole number, at least 1. Default 1. */
  cost?: number;
  /** Only rules of this domain apply; without it, only rules without one. */
  domain?: string;
}

/** A request of a batch. */
export interface BatchRequest extends RequestOptions {
  attributes: Attributes;
}

/** Where one limit stands. */
export interface Tier {
  /** The rule it belongs to. */
  readonly rule: string;
  /** What kind of subject it counts. */
  readonly scope: string;
  /** The subject that its bucket belongs to. */
  readonly subject: string;
  /** The limit as it is written, such as `10/s burst 50`. */
  readonly limitName: string;
  /** Whether it lets the request pass. */
  readonly allowed: boolean;
  /** The most that can pass at once. */
  readonly limit: number;
  /** What is left. */
  readonly remaining: number;
  /** What was used beyond the limit and is not paid back yet: until then nothing passes. */
  readonly debt: number;
  /** How long until it would let the request pass; null if it never will. */
  readonly retryAfterMs: number | null;
  /** How long until it owes nothing any more. */
  readonly resetAfterMs: number;
  /** True if the rule is in shadow mode: it never denies. */
  readonly shadow: boolean;
}

/** A ban on a request. */
export interface Ban {
  /** The banned subject, such as `ip:198.51.100.0/24`. */
  readonly subject: string;
  /** Why. */
  readonly reason: string;
  /** When it ends, in RFC 3339; null if never. */
  readonly until: string | null;
}

/** Whether a request passes, and where its limits stand. */
export interface Answer {
  /** Whether it passes. */
  readonly allowed: boolean;
  /** 200, 429 (must wait), 422 (can never pass), 403 (banned), 503 (cannot be decided). */
  readonly status: number;
  /** The limit of the governing tier; null if no rule applies. */
  readonly limit: number | null;
  /** What is left of it. */
  readonly remaining: number | null;
  /** How long until the same request would pass; null if it never will. */
  readonly retryAfterMs: number | null;
  /** How long until that limit owes nothing any more. */
  readonly resetAfterMs: number;
  /** How long to hold the request back (leaky bucket). */
  readonly delayMs: number;
  /** Of a record, what was not charged because of a limit's `max_debt`. */
  readonly cutOff: number;
  /** The rule with the longest wait, if denied. */
  readonly violated: string | null;
  /** The ban on the request, if it is banned. */
  readonly ban: Ban | null;
  /** What decided: a store, a policy, or `client` if the server was unreachable. */
  readonly decidedBy: string;
  /** Every tier of the request. */
  readonly tiers: readonly Tier[];
  /** The kind of problem, if denied. */
  readonly kind: string | null;
  /** The same for people. */
  readonly title: string | null;
  /** Which rule denies it, and when it would pass. */
  readonly detail: string | null;
  /** The policies that deny it, by their names in RateLimit-Policy. */
  readonly violatedPolicies: readonly string[];
  /** The rate-limit headers of the answer, in lower case, to be passed on. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface ClientOptions {
  /** Bounds a whole call. Default 1000. */
  timeoutMs?: number;
  /** Default "raise". */
  onUnreachable?: OnUnreachable;
  /** The server's API token, if it has one. */
  token?: string;
  /** What is called instead of the global fetch. */
  fetch?: typeof fetch;
  /** For an `https://` server; only in Node, and not with `fetch`. */
  tls?: TlsOptions;
}

/** Settings of TLS in PEM, as node:tls has them. */
export interface TlsOptions {
  /** The CA certificates that verify the server. Default: those that Node trusts. */
  ca?: string | Uint8Array;
  /** The client's certificate, for servers that require one. */
  cert?: string | Uint8Array;
  /** Its private key. */
  key?: string | Uint8Array;
  /** What the key is encrypted with. */
  passphrase?: string;
}

/** Asks a checkdam server. Rejects with `Refused`, `Unreachable` or, for bad input, `TypeError`. */
export class Client {
  /** `url` is by default `http://127.0.0.1:8080`. */
  constructor(url?: string | URL, options?: ClientOptions);
  /** Charges a request to every limit that applies, or to none. */
  check(attributes: Attributes, options?: RequestOptions): Promise<Answer>;
  /** Charges what was used, whatever is left; never denied. `allowed` says whether a request would pass now. */
  record(attributes: Attributes, cost: number, options?: Omit<RequestOptions, "cost">): Promise<Answer>;
  /** Answers as `check` would, charging nothing; the status is always 200. */
  peek(attributes: Attributes, options?: RequestOptions): Promise<Answer>;
  /** Gives back a cost to every limit that applies. */
  refund(attributes: Attributes, options?: RequestOptions): Promise<Answer>;
  /** Forgets what is owed to every limit that applies. */
  reset(attributes: Attributes, options?: RequestOptions): Promise<Answer>;
  /** Charges several requests, each by itself, in their order: at most 256. */
  checkBatch(requests: readonly BatchRequest[]): Promise<Answer[]>;
}

/** Any error of this package. */
export class CheckdamError extends Error {}

/** The server did not answer in time, or did not answer as checkdam does. */
export class Unreachable extends CheckdamError {}

/** The server did not accept the request; nothing was charged. */
export class Refused extends CheckdamError {
  constructor(status: number, detail: string, field: string | null);
  /** The HTTP status. */
  readonly status: number;
  /** What is wrong, and what to do. */
  readonly detail: string;
  /** The field of the request, such as `attributes.user`. */
  readonly field: string | null;
}

/** A call of a limited function was denied; the function was not called. */
export class Limited extends CheckdamError {
  constructor(answer: Answer);
  /** The server's answer. */
  readonly answer: Answer;
}

/** As many calls wait for their turn as may wait. */
export class QueueFull extends CheckdamError {}

/** A call would have to wait longer than its caller allows; it was not sent. */
export class WaitTooLong extends CheckdamError {
  constructor(waitMs: number, waitMaxMs: number);
  /** How long it would have to wait. */
  readonly waitMs: number;
}

export interface LimitedOptions<Args extends unknown[]> {
  /** How much each call costs. Default 1. */
  cost?: number | ((...args: Args) => number | Promise<number>);
  domain?: string;
  /** How long a call may be held back. Default 10000. */
  delayMaxMs?: number;
}

/** A function that is charged before each call; a denied call throws `Limited`. */
export function limited<Args extends unknown[], Result>(
  client: Client,
  attributes: Attributes | ((...args: Args) => Attributes | Promise<Attributes>),
  call: (...args: Args) => Result,
  options?: LimitedOptions<Args>,
): (...args: Args) => Promise<Awaited<Result>>;

/** What is needed of a request of node:http or Express. */
export interface IncomingRequest {
  method?: string;
  url?: string;
  originalUrl?: string;
  headers: Record<string, string | string[] | undefined>;
  ip?: string;
  socket?: { remoteAddress?: string };
}

/** What is needed of a response of node:http or Express. */
export interface OutgoingResponse {
  statusCode: number;
  destroyed?: boolean;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

/** How spellings of a path are treated that only some applications read alike. */
export interface PathForms {
  /** %2F, %5C and \\: answered with 400, kept as they are, or counted as `/`. Default "refuse". */
  slashes?: "refuse" | "keep" | "decode";
  /** What follows a semicolon in a segment. Default "strip". */
  parameters?: "strip" | "keep";
  /** A slash at the end. Default "keep"; "strip" before Express, which ignores it. */
  trailingSlash?: "keep" | "strip";
  /** Letter case. Default "keep"; "lower" before Express, which ignores it. */
  case?: "keep" | "lower";
}

/** A path that applications read in two ways; answered with 400. */
export class AmbiguousPath extends Error {}

export interface RateLimitOptions<Incoming extends IncomingRequest> {
  client: Client;
  /** By default `requestAttributes`; null for a request that is not limited. */
  attributes?: (request: Incoming) => Attributes | null | Promise<Attributes | null>;
  /** How much a request costs. Default 1. */
  cost?: number | ((request: Incoming) => number | Promise<number>);
  domain?: string;
  /** How long a request may be held back. Default 10000. */
  delayMaxMs?: number;
  /** How the default `attributes` write paths. */
  paths?: PathForms;
}

/** A middleware for Express, Connect and node:http that asks before the next handler is called. */
export function rateLimit<Incoming extends IncomingRequest>(
  options: RateLimitOptions<Incoming>,
): (request: Incoming, response: OutgoingResponse, next: (error?: unknown) => void) => Promise<void>;

/** method, endpoint, host and ip of a request. */
export function requestAttributes(request: IncomingRequest, paths?: PathForms): Record<string, string>;

export interface PaceOptions {
  /** The longest first pause after a refusal that says nothing, in seconds. Default 0.5. */
  backoffFirst?: number;
  /** The longest pause of that kind, in seconds. Default 30. */
  backoffMax?: number;
  /** Numbers from 0 to 1. */
  random?: () => number;
}

/** Follows the answers of one API and says when to send the next request. All times are in seconds. */
export class Pace {
  constructor(options?: PaceOptions);
  /** How long until the next request may be sent: 0 for at once, null for not before an answer arrives. */
  wait(now: number): number | null;
  /** A request is sent. */
  sent(now: number): void;
  /** A request ended without an answer. */
  failed(): void;
  /** A request was answered; returns whether it was refused and may be sent again. */
  answered(now: number, nowUnix: number, status: number, headers: { get(name: string): string | null }): boolean;
}

export interface PoliteOptions {
  /** A call that would have to wait longer fails with `WaitTooLong`. Default 60000. */
  waitMaxMs?: number;
  /** How many calls may wait. Default 1000. */
  queueMax?: number;
  /** How often a call is sent at most. Default 5. */
  attemptsMax?: number;
  pace?: Pace;
}

/** A fetch that queues calls, slows down before the limit and retries when the server permits. */
export function polite(send?: typeof fetch, options?: PoliteOptions): typeof fetch;
