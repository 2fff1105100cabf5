/** Normalizes paths, hosts and client addresses: the attributes of an HTTP request. */

/** A path that applications read in two ways. */
export class AmbiguousPath extends Error {}

/**
 * How spellings of a path are treated that only some applications read alike, as the
 * server's settings --path-slashes, --path-parameters, --path-trailing-slash and --path-case.
 */
const CHOICES = {
  slashes: ["refuse", "keep", "decode"],
  parameters: ["strip", "keep"],
  trailingSlash: ["keep", "strip"],
  case: ["keep", "lower"],
};

/** The given forms, with the defaults (the first of each) for the others. */
export function pathForms(given = {}) {
  const names = Object.keys(CHOICES);
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  if (unknown) throw new TypeError(`there are no paths.${unknown}: use ${names.join(", ")}`);
  const forms = {};
  for (const [name, choices] of Object.entries(CHOICES)) {
    forms[name] = given[name] ?? choices[0];
    if (!choices.includes(forms[name])) {
      throw new TypeError(`paths.${name} is ${JSON.stringify(given[name])}: use one of ${choices.join(", ")}`);
    }
  }
  return forms;
}

const DEFAULT = pathForms();

/** What some servers read as a slash. */
const OTHER_SLASHES = /%2f|%5c|\\/gi;

/**
 * method, endpoint, host and ip of a request of node:http or Express.
 *
 * No header decides the address: clients can send any header. Express's `trust
 * proxy` setting decides what its `req.ip` is. A path that can be read in two ways
 * throws AmbiguousPath, which the middleware answers with 400.
 */
export function requestAttributes(request, paths) {
  const forms = paths ? pathForms(paths) : DEFAULT;
  const target = request.originalUrl ?? request.url;
  if (hasDotSegments(target, forms)) {
    throw new AmbiguousPath("the path has dot segments: ask for the path that is meant");
  }
  // Some frameworks take get for GET.
  const attributes = { method: request.method.toUpperCase(), endpoint: endpoint(target, forms) };
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
export function endpoint(target, forms = DEFAULT) {
  const path = pathOf(target);
  if (path === "*") return path;
  if (forms.slashes === "refuse" && path.search(OTHER_SLASHES) >= 0) {
    throw new AmbiguousPath("the path has an encoded slash or a backslash (%2F, %5C or \\): write it in one way");
  }
  const segments = [];
  let isOpen = true;
  for (const plain of segmentsOf(path, forms)) {
    isOpen = plain === "" || plain === "." || plain === "..";
    if (!isOpen) segments.push(plain);
    else if (plain === "..") segments.pop();
  }
  const isSlashed = isOpen && !(segments.length > 0 && forms.trailingSlash === "strip");
  return segments.map((segment) => `/${segment}`).join("") + (isSlashed ? "/" : "");
}

/** Whether the path has dot segments: some applications follow them, others take them as they stand. */
export function hasDotSegments(target, forms = DEFAULT) {
  return segmentsOf(pathOf(target), forms).some((plain) => plain === "." || plain === "..");
}

function pathOf(target) {
  return target.replace(/[?#].*/s, "").replace(/^https?:\/\/[^/]*/i, "");
}

function segmentsOf(path, forms) {
  const slashed = forms.slashes === "decode" ? path.replace(OTHER_SLASHES, "/") : path;
  return slashed.split("/").map((segment) => {
    const plain = segment.replace(/%([0-9a-f]{2})|./gisu, (text, hex) => (hex ? byteText(parseInt(hex, 16)) : bytesText(text)));
    const bare = forms.parameters === "strip" ? plain.replace(/;.*/s, "") : plain;
    // The digits behind a percent stay in upper case.
    return forms.case === "lower" ? bare.replace(/%..|[A-Z]/g, (text) => (text[0] === "%" ? text : text.toLowerCase())) : bare;
  });
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
