/** `fetch` over node:https, for CAs and client certificates of one's own. Only Node has it. */

import { Agent, request } from "node:https";
import { createSecureContext } from "node:tls";

/** A connection that was idle for longer is not used again: the server closes after 75 s. */
const IDLE_MAX_MS = 30_000;

/** The most idle connections that are kept. */
const IDLE_CONNECTIONS_MAX = 64;

/**
 * What of `fetch` the client uses, with these settings of TLS. Throws a TypeError if they
 * cannot be used.
 */
export function httpsFetch(tls) {
  let secureContext;
  try {
    secureContext = createSecureContext({ ...tls, minVersion: "TLSv1.2" });
  } catch (cause) {
    throw new TypeError(`tls: the certificates or the key cannot be used: ${cause.message}`, { cause });
  }
  const agent = new Agent({
    keepAlive: true,
    maxFreeSockets: IDLE_CONNECTIONS_MAX,
    timeout: IDLE_MAX_MS,
    secureContext,
    ALPNProtocols: ["http/1.1"],
  });
  return (url, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const fail = (error) => reject(signal.aborted ? signal.reason : error);
      const sent = request(url, { agent, method, headers: { ...headers, "content-length": Buffer.byteLength(body) }, signal });
      sent.once("error", fail);
      sent.once("response", (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.once("error", fail);
        response.once("end", () => {
          const text = Buffer.concat(parts).toString();
          const pairs = Object.entries(response.headers).map(([name, value]) => [name, String(value)]);
          resolve({ status: response.statusCode, headers: new Headers(pairs), text: async () => text });
        });
      });
      sent.end(body);
    });
}
