/** The client against a real server. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, before, test } from "node:test";

import { Client, Limited, limited, Refused, Unreachable } from "../src/index.js";
import { silentAddress, startServer } from "./server.js";

let server;
let client;

before(async () => {
  server = await startServer();
  client = new Client(server.url, { timeoutMs: 5000 });
});

after(() => server?.stop());

test("check until denied", async () => {
  const user = { user: "check" };
  const answers = [];
  for (let count = 0; count < 4; count += 1) answers.push(await client.check(user));
  assert.deepEqual(answers.map(({ allowed }) => allowed), [true, true, true, false]);
  assert.deepEqual(answers.map(({ remaining }) => remaining), [2, 1, 0, 0]);
  const [first, , , denied] = answers;
  assert.deepEqual([first.status, first.limit, first.violated, first.decidedBy], [200, 3, null, "memory"]);
  assert.deepEqual([first.retryAfterMs, first.delayMs, first.ban], [0, 0, null]);
  assert.ok(first.resetAfterMs > 0 && first.resetAfterMs <= 60_000);
  assert.deepEqual(first.tiers.map((tier) => [tier.rule, tier.subject, tier.limitName, tier.limit, tier.shadow]), [
    ["user", "user:check", "1/m burst 3", 3, false],
    ["user", "user:check", "1000/h", 1000, false],
  ]);
  assert.equal(first.headers["x-ratelimit-limit"], "3");
  assert.ok(!("retry-after" in first.headers));
  assert.deepEqual([denied.status, denied.violated, denied.violatedPolicies], [429, "user", ["user 1/m"]]);
  assert.ok(denied.retryAfterMs > 50_000 && Number(denied.headers["retry-after"]) > 50);
  assert.match(denied.detail, /is exceeded/);
  const never = await client.check({ user: "check" }, { cost: 4 });
  assert.deepEqual([never.status, never.retryAfterMs], [422, null]);
});

test("the token is sent", async () => {
  const token = "the-api-token-of-tests";
  const guarded = await startServer(undefined, ["--api-token", token]);
  try {
    const user = { user: "token" };
    const known = new Client(guarded.url, { timeoutMs: 5000, token });
    assert.equal((await known.check(user)).remaining, 2);
    assert.equal((await known.reset(user)).remaining, 3);
    assert.deepEqual((await known.checkBatch([{ attributes: user }])).map(({ allowed }) => allowed), [true]);
    for (const settings of [{}, { token: "a-wrong-token-of-tests" }]) {
      const stranger = new Client(guarded.url, { timeoutMs: 5000, onUnreachable: "open", ...settings });
      await assert.rejects(stranger.check(user), (error) => error instanceof Refused && error.status === 401);
    }
  } finally {
    await guarded.stop();
  }
  for (const wrong of ["", "two words", "a\r\nHost: b", "\u00e4"]) {
    assert.throws(() => new Client("http://127.0.0.1:8080", { token: wrong }), TypeError);
  }
});

test("peek, refund and reset", async () => {
  const user = { user: "state" };
  assert.equal((await client.peek(user)).remaining, 3);
  assert.ok((await client.check(user, { cost: 3 })).allowed);
  const peeked = await client.peek(user);
  assert.deepEqual([peeked.allowed, peeked.status, peeked.remaining], [false, 200, 0]);
  assert.equal((await client.refund(user, { cost: 2 })).remaining, 2);
  assert.equal((await client.reset(user)).remaining, 3);
});

test("a record", async () => {
  const user = { user: "record" };
  assert.equal((await client.check(user)).tiers[0].debt, 0);
  const recorded = await client.record(user, 9);
  assert.deepEqual([recorded.status, recorded.allowed, recorded.remaining, recorded.cutOff], [200, false, 0, 0]);
  assert.deepEqual(recorded.tiers.map(({ debt }) => debt), [7, 0]);
  assert.ok(recorded.retryAfterMs > 400_000 && recorded.retryAfterMs <= 420_000);
  assert.equal((await client.check(user)).tiers[0].debt, 7);
  assert.equal((await client.record(user, 0)).cutOff, 0);
  // At most 100 times the limit may be owed beyond it.
  assert.equal((await client.record(user, 300)).cutOff, 7);
  assert.equal((await client.record({ user: "evil" }, 1)).status, 200);
  await assert.rejects(client.record(user, -1), { name: "Refused", field: "cost" });
  await assert.rejects(client.record(user), TypeError);
  await client.reset(user);
  assert.equal((await client.record(user, 2, { domain: "elsewhere" })).remaining, 5);
});

test("domains, shadow rules, bans, delays, and no rule that applies", async () => {
  const elsewhere = await client.check({ user: "domain" }, { domain: "elsewhere" });
  assert.deepEqual(elsewhere.tiers.map(({ rule }) => rule), ["elsewhere"]);
  const watched = await client.check({ watched: 42 });
  assert.deepEqual([watched.tiers[0].subject, watched.tiers[0].shadow], ["watched:42", true]);
  const banned = await client.check({ user: "evil" });
  assert.equal(banned.status, 403);
  assert.deepEqual(banned.ban, { subject: "user:evil", reason: "scraping", until: "2099-01-01T00:00:00Z" });
  const [, delayed] = await client.checkBatch([{ attributes: { queue: "client" } }, { attributes: { queue: "client" } }]);
  assert.ok(delayed.delayMs > 0 && delayed.delayMs <= 200);
  const unlimited = await client.check({ colour: "red" });
  assert.deepEqual([unlimited.allowed, unlimited.limit, unlimited.tiers], [true, null, []]);
  const never = await client.check({ user: "cost" }, { cost: 4 });
  assert.deepEqual([never.status, never.kind], [422, "urn:checkdam:problem:cost_exceeds_burst"]);
});

test("a batch", async () => {
  const attributes = { user: "batch" };
  const answers = await client.checkBatch([{ attributes, cost: 3 }, { attributes }, { attributes: { user: "evil" } }]);
  assert.deepEqual(answers.map(({ status }) => status), [200, 429, 403]);
  assert.deepEqual(await client.checkBatch([]), []);
});

test("bad values are named and charge nothing", async () => {
  const user = { user: "bad" };
  for (const [attributes, cost, field, words] of [
    [user, 0, "cost", /cost is 0/],
    [user, -1, "cost", /cost is -1/],
    [{ ...user, plan: "" }, 1, "attributes.plan", /"plan" is empty/],
    [{ ...user, plan: "x".repeat(513) }, 1, "attributes.plan", /513 bytes/],
  ]) {
    await assert.rejects(client.check(attributes, { cost }), (error) => {
      assert.ok(error instanceof Refused);
      assert.deepEqual([error.status, error.field, error.name], [422, field, "Refused"]);
      return words.test(error.message);
    });
  }
  const batch = client.checkBatch([{ attributes: user }, { attributes: user, cost: 0 }]);
  await assert.rejects(batch, { name: "Refused", field: "requests[1].cost" });
  assert.equal((await client.peek(user)).remaining, 3);
});

test("bad types are named and not sent", async () => {
  const unheard = new Client(await silentAddress());
  for (const [attributes, options, words] of [
    [{ user: null }, {}, /"user" is null/],
    [{ user: 1.5 }, {}, /"user" is 1.5/],
    [{ user: true }, {}, /"user" is true/],
    ["user", {}, /attributes is "user"/],
    [{ user: "a" }, { cost: "5" }, /cost is "5"/],
    [{ user: "a" }, { cost: 1.5 }, /cost is 1.5/],
    [{ user: "a" }, { costs: 2 }, /no option "costs"/],
  ]) {
    await assert.rejects(unheard.check(attributes, options), (error) => error instanceof TypeError && words.test(error.message));
  }
  await assert.rejects(unheard.checkBatch([{ attributes: { user: null } }]), /requests\[0\]: the attribute "user"/);
  for (const url of ["127.0.0.1:8080", "ftp://x", "nowhere"]) assert.throws(() => new Client(url), /no address of a server/);
  assert.throws(() => new Client(server.url, { onUnreachable: "opn" }), /onUnreachable is "opn"/);
});

test("an attribute may have any name", async () => {
  const names = JSON.parse('{"__proto__": "x", "constructor": "y", "user": "names"}');
  assert.equal((await client.check(names)).tiers.length, 2);
});

test("a server that cannot be reached", async () => {
  const url = await silentAddress();
  const user = { user: "unreachable" };
  await assert.rejects(new Client(url).check(user), { name: "Unreachable", message: /did not answer: .*ECONNREFUSED/ });
  const open = new Client(url, { onUnreachable: "open" });
  const { allowed, decidedBy } = await open.check(user);
  assert.deepEqual([allowed, decidedBy], [true, "client"]);
  assert.equal((await open.checkBatch([{ attributes: user }, { attributes: user }])).length, 2);
  const closed = await new Client(url, { onUnreachable: "closed" }).check(user);
  assert.deepEqual([closed.allowed, closed.status, closed.headers], [false, 503, { "retry-after": "1" }]);
});

test("somebody else listens", async () => {
  for (const [answer, kind] of [
    ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Unreachable],
    ['HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"allowed":true}', Unreachable],
    ["HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\n{}", Unreachable],
    ["HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", Unreachable],
    ["HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}", Refused],
    ["SSH-2.0-OpenSSH\r\n\r\n", Unreachable],
    [null, Unreachable],
  ]) {
    const other = createServer((socket) => socket.on("error", () => {}).once("data", () => answer && socket.end(answer)));
    await new Promise((done) => other.listen(0, "127.0.0.1", done));
    const asked = new Client(`http://127.0.0.1:${other.address().port}`, { timeoutMs: answer ? 5000 : 50 });
    await assert.rejects(asked.check({ user: "else" }), kind, answer);
    other.close();
  }
  for (const body of ['{"results": []}', '{"results": [1]}', '{"results": [{"status": 200}]}', "[]"]) {
    const asked = new Client("http://x", { fetch: async () => new Response(body) });
    await assert.rejects(asked.checkBatch([{ attributes: { user: "else" } }]), Unreachable, body);
  }
});

test("limited functions", async () => {
  const calls = [];
  const work = limited(client, (user) => ({ user }), async (user) => calls.push(user), { cost: (user, cost = 1) => cost });
  await work("limited", 2);
  await work("limited");
  await assert.rejects(work("limited"), (error) => error instanceof Limited && error.answer.violated === "user");
  await work("limited-other");
  assert.deepEqual(calls, ["limited", "limited", "limited-other"]);
});

test("a delay is waited for, or given back", async () => {
  const queue = { queue: "limited" };
  const work = limited(client, queue, () => true, { delayMaxMs: 250 });
  assert.ok(await work());
  assert.ok(await work());
  await client.check(queue, { cost: 10 });
  const { remaining } = await client.peek(queue);
  await assert.rejects(work(), ({ answer }) => {
    assert.equal(answer.status, 429);
    return answer.retryAfterMs > 0 && Number(answer.headers["retry-after"]) * 1000 >= answer.retryAfterMs;
  });
  assert.ok((await client.peek(queue)).remaining >= remaining);
});

test("what the server says of its answers is what the client reads, to the field", async () => {
  // The schemas are followed from the operation, since their names are the server's own.
  const { components, paths } = await (await fetch(`${server.url}/openapi.json`)).json();
  const properties = (schema) =>
    schema.$ref
      ? properties(components.schemas[schema.$ref.split("/").at(-1)])
      : Object.assign({}, schema.properties, ...(schema.allOf ?? []).map(properties));
  const denied = properties(paths["/v1/check"].post.responses["429"].content["application/problem+json"].schema);
  const renamed = { kind: "type", violatedPolicies: "violated-policies" };
  const wireName = (name) => renamed[name] ?? name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const wireNames = (answer) => Object.keys(answer).filter((name) => name !== "headers").map(wireName).sort();
  const answer = await client.check({ user: "schema" });
  assert.deepEqual(wireNames(answer), Object.keys(denied).sort());
  assert.deepEqual(wireNames(answer.tiers[0]), Object.keys(properties(denied.tiers.items)).sort());
});
