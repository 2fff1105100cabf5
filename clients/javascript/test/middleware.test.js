/** The middleware in front of node:http, over HTTP, asking a real server. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, get } from "node:http";
import { after, before, test } from "node:test";

import { Client, rateLimit, requestAttributes } from "../src/index.js";
import { AmbiguousPath, clientAddress, endpoint, hasDotSegments, hostName, pathForms } from "../src/normalize.js";
import { silentAddress, startServer } from "./server.js";

let server;

before(async () => {
  server = await startServer();
});

after(() => server?.stop());

/** Runs `scenario` with an application behind the middleware; returns how often the application was called. */
async function behind(settings, scenario, url = server.url) {
  let calls = 0;
  const limit = rateLimit({ client: new Client(url, { timeoutMs: 5000 }), ...settings });
  const application = createServer((request, response) =>
    limit(request, response, (error) => {
      if (error) response.statusCode = 500;
      else calls += 1;
      response.end(error ? error.message : "hello");
    }),
  );
  await new Promise((done) => application.listen(0, "127.0.0.1", done));
  try {
    await scenario(`http://127.0.0.1:${application.address().port}`);
  } finally {
    application.closeAllConnections();
    await new Promise((done) => application.close(done));
  }
  return calls;
}

test("denied requests do not reach the application", async () => {
  const calls = await behind({}, async (url) => {
    const passed = await fetch(`${url}/limited?a=b`);
    assert.deepEqual([passed.status, await passed.text()], [200, "hello"]);
    assert.equal(passed.headers.get("x-ratelimit-remaining"), "1");
    assert.ok(passed.headers.has("ratelimit-policy") && !passed.headers.has("retry-after"));
    await fetch(`${url}//limited`);
    const denied = await fetch(`${url}/%6cimited`);
    assert.equal(denied.status, 429);
    assert.equal(denied.headers.get("content-type"), "application/problem+json");
    assert.ok(Number(denied.headers.get("retry-after")) > 0);
    const problem = await denied.json();
    assert.deepEqual(problem["violated-policies"].sort(), ["address", "endpoint"]);
    assert.deepEqual([problem.status, "tiers" in problem], [429, false]);
  });
  assert.equal(calls, 2);
});

test("attributes and cost by functions, and requests that are not limited", async () => {
  const settings = {
    attributes: (request) => (request.url === "/free" ? null : { user: request.headers["x-user"] }),
    cost: async () => 3,
  };
  const calls = await behind(settings, async (url) => {
    const ask = async (path, user) => (await fetch(url + path, { headers: { "x-user": user } })).status;
    assert.deepEqual([await ask("/", "m1"), await ask("/", "m1"), await ask("/", "m2")], [200, 429, 200]);
    assert.deepEqual([await ask("/free", "m1"), await ask("/", "evil")], [200, 403]);
  });
  assert.equal(calls, 3);
});

test("a delay is waited for, or answered with 429", async () => {
  const calls = await behind({ attributes: () => ({ queue: "middleware" }), delayMaxMs: 500 }, async (url) => {
    const responses = await Promise.all(Array.from({ length: 10 }, () => fetch(url)));
    const refused = responses.filter(({ status }) => status === 429);
    assert.ok(refused.length >= 1 && refused.length <= 8, `${refused.length}`);
    for (const response of refused) assert.ok(Number(response.headers.get("retry-after")) >= 1);
  });
  assert.ok(calls >= 2 && calls <= 9, `${calls}`);
});

test("a server that cannot be reached is a 503", async () => {
  const check = async (url) => {
    const response = await fetch(url);
    assert.deepEqual([response.status, response.headers.get("retry-after")], [503, "1"]);
  };
  assert.equal(await behind({}, check, await silentAddress()), 0);
});

test("a path that is too long does not pass; the application's mistakes are errors", async () => {
  const tooLong = await behind({ attributes: (request) => ({ endpoint: request.url }) }, async (url) => {
    const response = await fetch(`${url}/${"x".repeat(600)}`);
    assert.equal(response.status, 400);
    assert.match((await response.json()).detail, /601 bytes/);
  });
  const mistaken = await behind({ cost: 0 }, async (url) => {
    const response = await fetch(url);
    assert.deepEqual([response.status, /cost is 0/.test(await response.text())], [500, true]);
  });
  assert.deepEqual([tooLong, mistaken], [0, 0]);
});

test("paths, hosts and addresses are normalized", () => {
  const cases = JSON.parse(readFileSync(new URL("../../normalize-cases.json", import.meta.url), "utf8"));
  for (const [kind, written] of Object.entries({ endpoints: endpoint, hosts: hostName, addresses: clientAddress })) {
    for (const [sent, expected] of cases[kind]) assert.equal(written(sent), expected, `${kind}: ${sent}`);
  }
  for (const [{ trailing_slash: trailingSlash, ...others }, sent, expected] of cases.forms) {
    const forms = trailingSlash ? { trailingSlash } : others;
    assert.equal(endpoint(sent, pathForms(forms)), expected, `${JSON.stringify(forms)}: ${sent}`);
  }
  for (const [forms, sent, expected] of cases.dots) {
    assert.equal(hasDotSegments(sent, pathForms(forms)), expected, `${JSON.stringify(forms)}: ${sent}`);
  }
  for (const sent of cases.refused) assert.throws(() => endpoint(sent), AmbiguousPath, sent);
  assert.throws(() => pathForms({ slashes: "allow" }), /slashes is "allow": use one of refuse, keep, decode/);
});

test("a router that Express mounts below a path counts the whole path", () => {
  const request = { method: "GET", originalUrl: "/api/items?page=2", url: "/items?page=2", headers: {}, ip: "203.0.113.9" };
  assert.deepEqual(requestAttributes(request), { method: "GET", endpoint: "/api/items", ip: "203.0.113.9" });
});

test("a path that can be read in two ways does not pass", async () => {
  const ask = (url, path) =>
    new Promise((done, failed) => get({ port: new URL(url).port, path }, (answer) => done(answer.resume().statusCode)).on("error", failed));
  const calls = await behind({}, async (url) => {
    for (const path of ["/x%2Fy", "/x\\y", "/x/../y", "/x/%2e%2e/y"]) assert.equal(await ask(url, path), 400, path);
  });
  const kept = await behind({ paths: { slashes: "keep" }, cost: 1 }, async (url) => {
    assert.notEqual(await ask(url, "/x%2Fy"), 400);
  });
  assert.deepEqual([calls, kept <= 1], [0, true]);
});
