/** The polite fetch: against a real server, whose /v1/check answers as any limited API does, and with canned answers. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Pace, polite } from "../src/index.js";
import { startServer } from "./server.js";

const RATE = 20;
const MILLISECONDS = 5000;
const WORKERS = 4;

let server;

before(async () => {
  server = await startServer();
});

after(() => server?.stop());

/** Asks with a fetch, and counts what every single request is answered. */
function counting() {
  const seen = { 200: 0, 429: 0 };
  const counted = async (...request) => {
    const response = await fetch(...request);
    seen[response.status] += 1;
    return response;
  };
  return [seen, counted];
}

async function ask(send, key) {
  const response = await send(`${server.url}/v1/check`, {
    method: "POST",
    body: JSON.stringify({ attributes: { polite: key } }),
  });
  await response.text();
  return response.status;
}

test("a polite caller gets what is allowed and is hardly ever refused; a naive one beside it gets no more", async () => {
  const [seen, counted] = counting();
  const [naive, countedNaively] = counting();
  await ask(fetch, "javascript-warm-up");
  const end = performance.now() + MILLISECONDS;
  const send = polite(counted);
  const callPolitely = async () => {
    while (performance.now() < end) await ask(send, "javascript");
  };
  const callNaively = async () => {
    while (performance.now() < end) {
      await ask(countedNaively, "javascript-naive");
      await new Promise((done) => setTimeout(done, 10));
    }
  };
  await Promise.all([...Array.from({ length: WORKERS }, callPolitely), callNaively()]);
  const byRate = (RATE * MILLISECONDS) / 1000;
  console.log(
    `polite: ${seen[200]} pass (${byRate} by the rate, ${byRate + RATE} with the burst), ${seen[429]} refused; ` +
      `naive: ${naive[200]} pass, ${naive[429]} refused`,
  );
  assert.ok(seen[200] >= 0.95 * byRate);
  assert.ok(seen[429] < 0.02 * (seen[200] + seen[429]));
  assert.ok(naive[429] > 0.1 * (naive[200] + naive[429]));
});

test("a crowd with one caller: all pass, none is refused", async () => {
  const [seen, counted] = counting();
  const send = polite(counted);
  const statuses = await Promise.all(Array.from({ length: 40 }, () => ask(send, "javascript-crowd")));
  assert.deepEqual([new Set(statuses), seen], [new Set([200]), { 200: 40, 429: 0 }]);
});

/** A polite fetch with pauses of no length, and what it sent. */
function canned(answer, settings) {
  const sent = [];
  const send = async (...request) => {
    sent.push(request);
    return answer(sent.length, ...request);
  };
  return [sent, polite(send, { pace: new Pace({ backoffFirst: 0.001, random: () => 0.5 }), ...settings })];
}

const respond = (status, headers) => new Response("x", { status, headers });

test("a refused call is repeated, within bounds", async () => {
  const [sent, send] = canned((count) => respond([429, 503, 200][count - 1]));
  assert.deepEqual([(await send("http://x/")).status, sent.length], [200, 3]);
  const [sentAlways, sendAlways] = canned(() => respond(429), { attemptsMax: 3 });
  const response = await sendAlways("http://x/");
  assert.deepEqual([response.status, await response.text(), sentAlways.length], [429, "x", 3]);
});

test("a Request is sent whole each time, a stream only once", async () => {
  const bodies = [];
  const [, send] = canned(async (count, request) => {
    bodies.push(await request.text());
    return respond(count < 3 ? 429 : 200);
  });
  await send(new Request("http://x/", { method: "POST", body: "whole" }));
  assert.deepEqual(bodies, ["whole", "whole", "whole"]);
  const [sent, sendStream] = canned(() => respond(429));
  const body = new Blob(["x"]).stream();
  assert.equal((await sendStream("http://x/", { method: "POST", body, duplex: "half" })).status, 429);
  assert.equal(sent.length, 1);
});

test("a long pause is not waited for", async () => {
  const [sent, send] = canned(() => respond(429, { "retry-after": "100" }), { waitMaxMs: 2000 });
  assert.equal((await send("http://x/")).status, 429);
  await assert.rejects(send("http://x/"), { name: "WaitTooLong", message: /at most 2000 ms/ });
  assert.equal(sent.length, 1);
});

test("errors are passed on and not repeated", async () => {
  const [sent, send] = canned((count) => {
    if (count === 1) throw new TypeError("broken");
    return respond(200);
  });
  await assert.rejects(send("http://x/"), /broken/);
  assert.equal((await send("http://x/")).status, 200);
  assert.equal(sent.length, 2);
});

test("turns are taken in order, kept when refused, and bounded", async () => {
  const [sent, send] = canned((count) => respond(count < 3 ? 429 : 200), { queueMax: 3 });
  const calls = ["a", "b", "c", "d"].map((name) => send(`http://x/${name}`));
  // The first is under way, three wait.
  await assert.rejects(send("http://x/e"), { name: "QueueFull", message: "3 calls wait already: at most 3 may" });
  await Promise.all(calls);
  assert.equal(sent.map(([url]) => url.at(-1)).join(""), "aaabcd");
});

test("a caller that gives up leaves the queue", async () => {
  let goOn;
  const held = new Promise((resolve) => (goOn = resolve));
  const [sent, send] = canned(async () => {
    await held;
    return respond(200);
  });
  const abort = new AbortController();
  const first = send("http://x/first");
  const waiting = send("http://x/waiting", { signal: abort.signal });
  const last = send("http://x/last");
  abort.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  goOn();
  assert.deepEqual([(await first).status, (await last).status, sent.length], [200, 200, 2]);
});
