/** A real checkdam server for the tests, ended with them. */

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const RULES = `
rules:
  - { name: user, key: "user:{user}", limits: ["1/m burst 3", "1000/h"] }
  - { name: address, key: "ip:{ip}", limits: ["2/m"] }
  - { name: endpoint, key: "endpoint:{endpoint}", when: { endpoint: /limited }, limits: ["2/m"] }
  - { name: watched, key: "watched:{watched}", limits: ["1/m"], mode: shadow }
  - { name: queue, key: "queue:{queue}", limits: ["5/s burst 100"], algorithm: leaky_bucket }
  - { name: polite, key: "polite:{polite}", limits: ["20/s"] }
  - { name: elsewhere, domain: elsewhere, key: "user:{user}", limits: ["7/m"] }
bans:
  - { subject: "user:evil", reason: scraping, until: "2099-01-01T00:00:00Z" }
`;

/** How long the server may take to start. */
const PATIENCE_MS = 20_000;

/** Starts a server; `stop` ends it. */
export async function startServer(rulesText = RULES, settings = []) {
  const binary = process.env.CHECKDAM_BIN;
  if (!binary || !existsSync(binary)) {
    throw new Error(`CHECKDAM_BIN is ${JSON.stringify(binary)}: set it to the path of the checkdam binary`);
  }
  const folder = mkdtempSync(join(tmpdir(), "checkdam-"));
  const rules = join(folder, "rules.yaml");
  writeFileSync(rules, rulesText);
  const around = Object.entries(process.env).filter(([name]) => !/^(CHECKDAM_|LOG_|DATABASE_URL)/.test(name));
  const env = {
    ...Object.fromEntries(around),
    CHECKDAM_ADMIN_LISTEN: "127.0.0.1:0",
    CHECKDAM_GRPC_LISTEN: "off",
    CHECKDAM_DATA_DIR: folder,
  };
  const server = spawn(resolve(binary), ["serve", "--http-listen", "127.0.0.1:0", "--rules", rules, ...settings], {
    cwd: folder,
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = new Promise((end) => server.once("close", end));
  const stop = async () => {
    server.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    return { url: await listening(server), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function listening(server) {
  return new Promise((resolve, reject) => {
    const said = [];
    const fail = () => reject(new Error(`the server did not start:\n${said.join("\n")}`));
    const timer = setTimeout(fail, PATIENCE_MS);
    server.once("error", reject);
    server.once("close", fail);
    createInterface({ input: server.stderr }).on("line", (line) => {
      said.push(line);
      if (!line.includes("/v1/check")) return;
      clearTimeout(timer);
      resolve(said.find((text) => text.includes("listening")).trim().split(/\s+/).at(-1));
    });
  });
}

/** Runs openssl; certificates of tests are made with it. */
export function openssl(...args) {
  execFileSync("openssl", args, { stdio: "ignore" });
}

/** A CA, and what it has signed: `server` for 127.0.0.1, `client`, and `other` by another CA. */
export function makeCertificates() {
  const folder = mkdtempSync(join(tmpdir(), "checkdam-tls-"));
  const path = (name) => join(folder, name);
  const key = (name) => ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path(`${name}.key`)];
  writeFileSync(path("names"), "subjectAltName=IP:127.0.0.1");
  for (const [ca, signed] of [["ca", ["server", "client"]], ["other-ca", ["other"]]]) {
    openssl("req", "-x509", ...key(ca), "-out", path(`${ca}.crt`), "-days", "2", "-subj", `/CN=tests ${ca}`);
    for (const name of signed) {
      openssl("req", ...key(name), "-out", path(`${name}.csr`), "-subj", `/CN=tests ${name}`);
      const authority = ["-CA", path(`${ca}.crt`), "-CAkey", path(`${ca}.key`), "-CAcreateserial"];
      const made = ["-out", path(`${name}.crt`), "-days", "2", "-extfile", path("names")];
      openssl("x509", "-req", "-in", path(`${name}.csr`), ...authority, ...made);
    }
  }
  return { path, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** The settings of a server with such certificates; a mutual one requires a client certificate. */
export function tlsSettings({ path }, isMutual = false) {
  const pair = ["--tls-cert", path("server.crt"), "--tls-key", path("server.key")];
  return isMutual ? [...pair, "--http-tls-client-ca", path("ca.crt")] : pair;
}

/** An address where no server listens. */
export async function silentAddress() {
  const free = createServer();
  await new Promise((done) => free.listen(0, "127.0.0.1", done));
  const { port } = free.address();
  await new Promise((done) => free.close(done));
  return `http://127.0.0.1:${port}`;
}
