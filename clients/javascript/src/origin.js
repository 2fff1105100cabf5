/** Who asks for what, as far as an HTTP request tells by itself. */

/**
 * method, endpoint, host and ip of a request of node:http or Express.
 *
 * Headers are not asked who the client is: clients write them. Express's `trust
 * proxy` setting decides what its `req.ip` is.
 */
export function requestAttributes(request) {
  const attributes = { method: request.method, endpoint: endpoint(request.originalUrl ?? request.url) };
  const host = hostName(request.headers.host ?? "");
  if (host) attributes.host = host;
  const ip = clientAddress(request.ip ?? request.socket?.remoteAddress ?? "");
  if (ip) attributes.ip = ip;
  return attributes;
}

/**
 * The path without its query, with one slash where there are several, without dot
 * segments and each character in one way, so that no other way of writing it has
 * a bucket of its own.
 */
export function endpoint(target) {
  const path = target.replace(/[?#].*/s, "").replace(/^https?:\/\/[^/]*/i, "");
  if (path === "*") return path;
  const segments = [];
  let isOpen = true;
  for (const segment of path.split("/")) {
    const plain = segment.replace(/%([0-9a-f]{2})|./gisu, (text, hex) => (hex ? byteText(parseInt(hex, 16)) : bytesText(text)));
    isOpen = plain === "" || plain === "." || plain === "..";
    if (!isOpen) segments.push(plain);
    else if (plain === "..") segments.pop();
  }
  return segments.map((segment) => `/${segment}`).join("") + (isOpen ? "/" : "");
}

/** In lower case, without port, brackets and last dot. */
export function hostName(authority) {
  const inBrackets = /^\[([^\]]*)/.exec(authority);
  const isBareIpv6 = authority.split(":").length > 2;
  const host = inBrackets ? inBrackets[1] : isBareIpv6 ? authority : authority.replace(/:.*/s, "");
  return host.replace(/\.$/, "").toLowerCase();
}

/** IPv6 by its /64, which is one subscriber; empty for what is no address, such as a Unix socket. */
export function clientAddress(peer) {
  const text = peer.replace(/%.*$/s, "");
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) return text.split(".").every((octet) => octet < 256) ? text : "";
  const groups = ipv6Groups(text);
  if (!groups) return "";
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return groups.slice(6).flatMap((group) => [group >> 8, group & 255]).join(".");
  }
  const network = groups.slice(0, 4).map((group) => group.toString(16));
  return new URL(`http://[${network.join(":")}::]`).hostname.slice(1, -1);
}

/** The eight groups of an address, which the parser of URLs knows how to read. */
function ipv6Groups(text) {
  let shortest;
  try {
    shortest = new URL(`http://[${text}]`).hostname.slice(1, -1);
  } catch {
    return null;
  }
  const [head, tail] = shortest.split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = tail ? Array(8 - head.length - tail.length).fill("0") : [];
  return [...head, ...zeros, ...(tail ?? [])].map((group) => parseInt(group, 16));
}

function bytesText(text) {
  return Array.from(new TextEncoder().encode(text), byteText).join("");
}

/** A byte of a path: bare where RFC 3986 allows it in a segment, else behind a percent. */
function byteText(byte) {
  const character = String.fromCharCode(byte);
  if (/[A-Za-z0-9._~!$&'()*+,;=:@-]/.test(character)) return character;
  return `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}
