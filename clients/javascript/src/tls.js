/** Settings of TLS: which of them can be used, and what their errors mean. Does no I/O. */

const PEM = {
  ca: /-----BEGIN (TRUSTED )?CERTIFICATE-----/,
  cert: /-----BEGIN CERTIFICATE-----/,
  key: /-----BEGIN [A-Z ]*PRIVATE KEY-----/,
};

/** Throws a TypeError unless they are settings for this protocol. */
export function checkTls(tls, protocol) {
  if (tls === null || typeof tls !== "object") throw new TypeError("tls must be an object such as {ca: readFileSync(\"ca.crt\")}");
  const { passphrase, ...files } = tls;
  for (const [name, pem] of Object.entries(files)) {
    if (!Object.hasOwn(PEM, name)) throw new TypeError(`there is no option tls.${name}: it has ca, cert, key and passphrase`);
    if (pem === undefined) continue;
    const text = typeof pem === "string" ? pem : pem instanceof Uint8Array ? new TextDecoder().decode(pem) : "";
    if (!PEM[name].test(text)) {
      const what = name === "key" ? "a private key" : "a certificate";
      throw new TypeError(`tls.${name} is not ${what} in PEM: give the content of the file, not its name`);
    }
  }
  if ((files.cert === undefined) !== (files.key === undefined)) {
    const [given, missing] = files.key === undefined ? ["cert", "key"] : ["key", "cert"];
    throw new TypeError(`tls.${given} is given without tls.${missing}`);
  }
  if (protocol !== "https:") throw new TypeError("tls is given: write the server's address as https://…");
}

const NOT_ACCEPTED = /^(UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|ERR_TLS_CERT_)/;

/** What an error of a connection means, if TLS is its cause. */
export function explainTls(error) {
  const code = String(error?.code ?? "");
  // Errors while writing have the code EPROTO, and OpenSSL's text.
  const alert = `${code} ${error?.message}`.toUpperCase().replaceAll(" ", "_");
  if (NOT_ACCEPTED.test(code)) return `its certificate is not accepted: ${error.message}; see tls.ca`;
  if (alert.includes("ALERT_CERTIFICATE_REQUIRED")) return "it requires a client certificate: see tls.cert";
  const refused = /ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_UNKNOWN)/.exec(alert);
  if (refused) return `it does not accept the client certificate (${refused[1]})`;
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG/.test(alert)) return "it does not use TLS: write its address as http://…";
  return undefined;
}
