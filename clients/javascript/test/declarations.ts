/** A program that uses every declaration of the package; `clients/test` compiles it, and nothing runs it. */

import { createServer } from "node:http";

import {
  AmbiguousPath,
  Client,
  Limited,
  limited,
  Pace,
  polite,
  QueueFull,
  rateLimit,
  Refused,
  requestAttributes,
  Unreachable,
  WaitTooLong,
  type Answer,
  type Attributes,
  type PathForms,
  type Tier,
} from "checkdam-client";
import express from "express";

const client = new Client(new URL("http://127.0.0.1:8080"), { timeoutMs: 200, onUnreachable: "closed", token: "the-api-token", fetch });
export const secure = new Client("https://127.0.0.1:8080", { tls: { ca: "", cert: new Uint8Array(), key: "", passphrase: "" } });
const attributes: Attributes = { user: "42", shard: 7 };
const paths: PathForms = { slashes: "decode", trailingSlash: "strip", case: "lower" };

export async function check(): Promise<number> {
  try {
    const answer: Answer = await client.check(attributes, { cost: 2, domain: "edge" });
    const [first]: readonly Tier[] = answer.tiers;
    const answers: Answer[] = await client.checkBatch([{ attributes, cost: 1 }, { attributes }]);
    const recorded: Answer = await client.record(attributes, 1500, { domain: "edge" });
    const debt: number | undefined = recorded.tiers[0]?.debt;
    return (debt ?? recorded.cutOff) + (first?.retryAfterMs ?? 0) + answers.length + (answer.remaining ?? 0);
  } catch (error) {
    if (error instanceof Refused) return error.status;
    if (error instanceof Limited) return error.answer.retryAfterMs ?? Infinity;
    if (error instanceof WaitTooLong) return error.waitMs;
    if (error instanceof Unreachable || error instanceof QueueFull || error instanceof AmbiguousPath) return 0;
    throw error;
  }
}

// @ts-expect-error An attribute is a string or a number.
void client.check({ user: null });
// @ts-expect-error There is no such policy.
new Client("http://127.0.0.1:8080", { onUnreachable: "opn" });
// @ts-expect-error There is no such setting of TLS.
new Client("https://127.0.0.1:8080", { tls: { certificate: "" } });

const length = limited(client, (name: string) => ({ user: name }), async (name: string) => name.length, { cost: 1 });
export const called: Promise<number> = length("42");

const app = express();
app.use(rateLimit({ client, paths }));
app.use(rateLimit({ client, attributes: (request: express.Request) => ({ user: request.get("x-user") ?? "" }), cost: () => 1 }));

const limit = rateLimit({ client });
export const server = createServer((request, response) => void limit(request, response, () => response.end(requestAttributes(request).endpoint)));

const send: typeof fetch = polite(fetch, { waitMaxMs: 1000, queueMax: 10, attemptsMax: 2, pace: new Pace({ backoffFirst: 1 }) });
export const response: Promise<Response> = send("https://api.example.com/items");
