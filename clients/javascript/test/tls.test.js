/** The client against real servers with TLS. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { after, before, test } from "node:test";

import { Client, Unreachable } from "../src/index.js";
import { makeCertificates, openssl, startServer, tlsSettings } from "./server.js";

let certificates, server, mutual, plain;

before(async () => {
  certificates = makeCertificates();
  server = await startServer(undefined, tlsSettings(certificates));
  mutual = await startServer(undefined, tlsSettings(certificates, true));
  plain = await startServer();
});

after(async () => {
  for (const started of [server, mutual, plain]) await started?.stop();
  certificates?.remove();
});

const read = (name) => readFileSync(certificates.path(name));
const connect = (url, tls) => new Client(url, { timeoutMs: 5000, tls });
const isUnreachable = (words) => (error) => error instanceof Unreachable && words.test(error.message);

async function remaining(client, user) {
  const all = [];
  for (let count = 0; count < 3; count += 1) all.push((await client.check({ user })).remaining);
  return all;
}

test("a server with a CA of its own", async () => {
  const client = connect(server.url, { ca: read("ca.crt") });
  assert.deepEqual(await remaining(client, "tls"), [2, 1, 0]);
  const denied = await client.check({ user: "tls" });
  assert.deepEqual([denied.status, denied.headers["x-ratelimit-limit"]], [429, "3"]);
  assert.equal((await client.checkBatch([{ attributes: { user: "tls-batch" } }]))[0].remaining, 2);
  for (const tls of [undefined, {}, { ca: read("other-ca.crt") }]) {
    await assert.rejects(connect(server.url, tls).check({ user: "tls" }), isUnreachable(/certificate is not accepted: .*; see tls\.ca$/));
  }
  // The certificate is for 127.0.0.1.
  const elsewhere = connect(server.url.replace("127.0.0.1", "localhost"), { ca: read("ca.crt") });
  await assert.rejects(elsewhere.check({ user: "tls" }), isUnreachable(/not accepted: .*localhost/));
  const wrong = connect(plain.url.replace("http:", "https:"), { ca: read("ca.crt") });
  await assert.rejects(wrong.check({ user: "tls" }), isUnreachable(/write its address as http:/));
});

test("a server that requires a client certificate", async () => {
  const ca = String(read("ca.crt"));
  const client = connect(mutual.url, { ca, cert: read("client.crt"), key: String(read("client.key")) });
  assert.deepEqual(await remaining(client, "mutual"), [2, 1, 0]);
  openssl("ec", "-in", certificates.path("client.key"), "-aes128", "-passout", "pass:secret", "-out", certificates.path("encrypted.key"));
  const encrypted = connect(mutual.url, { ca, cert: read("client.crt"), key: read("encrypted.key"), passphrase: "secret" });
  assert.equal((await encrypted.check({ user: "mutual" })).allowed, false);
  await assert.rejects(connect(mutual.url, { ca }).check({ user: "mutual" }), isUnreachable(/requires a client certificate: see tls\.cert/));
  const other = connect(mutual.url, { ca, cert: read("other.crt"), key: read("other.key") });
  await assert.rejects(other.check({ user: "mutual" }), isUnreachable(/does not accept the client certificate/));
});

test("settings that cannot be used are named", async () => {
  const [ca, cert, key] = ["ca.crt", "client.crt", "client.key"].map(read);
  for (const [url, options, words] of [
    ["https://h", { tls: { ca: "ca.crt" } }, /tls\.ca is not a certificate in PEM: give the content/],
    ["https://h", { tls: { cert: key, key } }, /tls\.cert is not a certificate/],
    ["https://h", { tls: { cert, key: cert } }, /tls\.key is not a private key/],
    ["https://h", { tls: { cert } }, /tls\.cert is given without tls\.key/],
    ["https://h", { tls: { key } }, /tls\.key is given without tls\.cert/],
    ["https://h", { tls: { certificate: cert } }, /no option tls\.certificate/],
    ["https://h", { tls: null }, /must be an object/],
    ["https://h", { tls: { ca }, fetch }, /tls and fetch/],
    ["http://h", { tls: { ca } }, /https:/],
  ]) {
    assert.throws(() => new Client(url, options), (error) => error instanceof TypeError && words.test(error.message));
  }
  // Whatever onUnreachable says: the server is not to blame.
  const pair = new Client(server.url, { onUnreachable: "open", tls: { ca, cert, key: read("other.key") } });
  await assert.rejects(pair.check({ user: "tls" }), (error) => error instanceof TypeError && /mismatch/.test(error.message));
});

test("connections are kept open, and a slow server is given up", async () => {
  let connections = 0;
  const relay = createServer((socket) => {
    connections += 1;
    socket.pipe(createConnection(Number(new URL(server.url).port), "127.0.0.1")).pipe(socket);
  });
  await new Promise((done) => relay.listen(0, "127.0.0.1", done));
  const client = connect(`https://127.0.0.1:${relay.address().port}`, { ca: read("ca.crt") });
  for (let count = 0; count < 5; count += 1) await client.peek({ user: "kept" });
  assert.equal(connections, 1);
  await Promise.all(["a", "b", "c"].map((user) => client.check({ user })));
  assert.ok(connections <= 3, "one is kept, the others are opened at once");
  relay.close();
  const hasty = new Client(server.url, { timeoutMs: 0, tls: { ca: read("ca.crt") } });
  await assert.rejects(hasty.check({ user: "tls" }), isUnreachable(/within 0 ms/));
});
