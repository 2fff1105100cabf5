/**
 * Runs every example of the README with the installed package, against a real server.
 *
 * `clients/test` runs it with INSTALLED_IN, a folder in which the packed package and Express
 * are installed.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { pathToFileURL } from "node:url";

import { makeCertificates, startServer, tlsSettings } from "./server.js";

const RULES = `
rules:
  - { name: user-free, key: "user:{user}", when: { plan: free }, limits: ["1/m burst 6"] }
  - { name: items, key: "endpoint:{endpoint}", when: { endpoint: /items }, limits: ["2/m"] }
`;

const FOLDER = process.env.INSTALLED_IN;
assert.ok(FOLDER, "INSTALLED_IN must name the folder in which the package is installed");
const { Client, ...others } = await import(pathToFileURL(join(FOLDER, "node_modules/checkdam-client/src/index.js")));

const EXAMPLES = examples("../README.md");
const used = new Set();
const apiStatuses = [];
let server, api, client, certificates, tlsServer;

/** The JavaScript blocks of a Markdown file. */
function examples(path) {
  const text = readFileSync(new URL(path, import.meta.url), "utf8");
  return Array.from(text.matchAll(/^```(c?)js\n(.*?)^```$/gms), ([, common, code]) => ({ extension: `${common || "m"}js`, code }));
}

/** Runs the only example that contains `marker`; returns what it exports and what it printed. */
async function run(marker, exported = []) {
  const found = EXAMPLES.filter(({ code }) => code.includes(marker));
  assert.equal(found.length, 1, `examples of the README with ${marker}`);
  const [{ extension, code }] = found;
  used.add(code);
  const text = code
    .replaceAll("http://127.0.0.1:8080", server.url)
    .replaceAll("https://limits.example:8443", tlsServer.url)
    .replaceAll(/"((?:ca|client)\.(?:crt|key))"/g, (_, name) => JSON.stringify(certificates.path(name)))
    .replaceAll("https://api.example.com", `http://127.0.0.1:${api.address().port}`)
    // The examples' timeouts suit production, not a machine that compiles beside the tests.
    .replaceAll("timeoutMs: 200", "timeoutMs: 5000");
  run.count = (run.count ?? 0) + 1;
  const file = join(FOLDER, `example-${run.count}.${extension}`);
  writeFileSync(file, exported.length > 0 ? `${text}\nexport { ${exported.join(", ")} };\n` : text);
  const printed = [];
  const { log } = console;
  console.log = (...values) => printed.push(values.join(" "));
  try {
    const module = await import(pathToFileURL(file));
    // The CommonJS example exports the promise of its end.
    if (extension === "cjs") await module.default;
    return { ...module, printed };
  } finally {
    console.log = log;
  }
}

/** Serves an application and asks it; returns the responses. */
async function ask(application, requests) {
  const http = typeof application === "function" ? createServer(application) : application;
  await new Promise((done) => http.listen(0, "127.0.0.1", done));
  const responses = [];
  for (const [path, init] of requests) {
    responses.push(await fetch(`http://127.0.0.1:${http.address().port}${path}`, init));
  }
  http.closeAllConnections();
  await new Promise((done) => http.close(done));
  return responses;
}

const statuses = (responses) => responses.map(({ status }) => status);

before(async () => {
  server = await startServer(RULES);
  client = new Client(server.url, { timeoutMs: 5000 });
  certificates = makeCertificates();
  tlsServer = await startServer(RULES, tlsSettings(certificates, true));
  api = createServer((request, response) => {
    const isFirst = apiStatuses.length === 0;
    apiStatuses.push(isFirst ? 429 : 200);
    response.writeHead(apiStatuses.at(-1), isFirst ? { "retry-after": "1" } : {}).end();
  });
  await new Promise((done) => api.listen(0, "127.0.0.1", done));
});

after(async () => {
  api?.closeAllConnections();
  api?.close();
  await server?.stop();
  await tlsServer?.stop();
  certificates?.remove();
});

beforeEach(async () => {
  for (const user of ["42", "43", "key"]) await client.reset({ user, plan: "free" });
  await client.reset({ endpoint: "/items" });
});

test("a check", async () => {
  const marker = 'onUnreachable: "open"';
  const { answer, printed } = await run(marker, ["answer"]);
  assert.deepEqual([answer.allowed, answer.decidedBy, printed], [true, "memory", []]);
  await client.check({ user: "42", plan: "free" }, { cost: 5 });
  assert.match((await run(marker)).printed.join(), /^user-free denies it: .*try again in \d+ ms$/);
});

test("a batch", async () => {
  assert.deepEqual((await run("checkBatch", ["answers"])).answers.map(({ allowed }) => allowed), [true, true]);
});

test("a record", async () => {
  assert.deepEqual((await run("client.record(")).printed, ["false 14"]);
});

test("TLS", async () => {
  assert.deepEqual((await run("tls: {")).printed, ["true"]);
});

test("CommonJS", async () => {
  assert.deepEqual((await run("module.exports")).printed, ["true 5"]);
});

test("a limited function", async () => {
  assert.deepEqual((await run("limited(")).printed, ["results for dams"]);
  await client.check({ user: "42", plan: "free" }, { cost: 5 });
  assert.match((await run("limited(")).printed.join(), /try again in \d+ ms$/);
});

test("Express", async () => {
  const { app } = await run("trailingSlash", ["app"]);
  const responses = await ask(app, [["/items"], ["/ITEMS/"], ["/items"]]);
  assert.deepEqual(statuses(responses), [200, 200, 429]);
  assert.deepEqual(await responses[0].json(), ["one", "two"]);
  assert.equal(responses[0].headers.get("x-ratelimit-remaining"), "1");
  assert.ok(responses[2].headers.has("retry-after"));
  assert.deepEqual((await responses[2].json())["violated-policies"], ["items"]);
});

test("Express with attributes and a cost", async () => {
  const { app } = await run("request.get(", ["app"]);
  const headers = { "x-api-key": "key" };
  const [post, get] = [["/a", { method: "POST", headers }], ["/a", { headers }]];
  assert.deepEqual(statuses(await ask(app, [post, get, get, ["/health", { headers }]])), [200, 200, 429, 200]);
});

test("node:http", async () => {
  const { server: http } = await run("createServer(", ["server"]);
  assert.deepEqual(statuses(await ask(http, [["/items"], ["/items"], ["/items"], ["/other"]])), [200, 200, 429, 200]);
});

test("a polite fetch", async () => {
  assert.deepEqual((await run("polite(")).printed, ["200"]);
  assert.deepEqual(apiStatuses, [429, 200]);
});

test("every example has a test, and the book shows the same ones", () => {
  const codes = EXAMPLES.map(({ code }) => code);
  assert.deepEqual(codes.filter((code) => !used.has(code)), []);
  for (const { code } of examples("../../../docs/integrations/clients.md")) assert.ok(codes.includes(code), code);
});

test("the declarations name what the package exports", () => {
  const declared = readFileSync(join(FOLDER, "node_modules/checkdam-client/src/index.d.ts"), "utf8");
  const names = Array.from(declared.matchAll(/^export (?:class|function) (\w+)/gm), ([, name]) => name);
  assert.deepEqual(names.sort(), ["Client", ...Object.keys(others)].sort());
});

test("the package holds its license and documents", () => {
  const read = (path) => readFileSync(path, "utf8");
  assert.equal(read(join(FOLDER, "node_modules/checkdam-client/LICENSE")), read(new URL("../../../LICENSE", import.meta.url)));
  assert.ok(read(join(FOLDER, "node_modules/checkdam-client/README.md")).startsWith("# checkdam-client"));
});
