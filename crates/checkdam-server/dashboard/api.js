// Asks the admin API, with the token if there is one.

import { askForToken, token } from "./admin_token.js";

// The server answered, and said no.
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
    this.status = status;
    this.field = problem.field;
  }
}

// Nobody answered.
export class Unreachable extends Error {}

// Hears of "lost" and "back": whether the server can be reached.
export const connectivity = new EventTarget();
let is_lost = false;

function setReachable(is_reached) {
  if (is_lost === !is_reached) return;
  is_lost = !is_reached;
  connectivity.dispatchEvent(new Event(is_lost ? "lost" : "back"));
}

// The answer itself, whatever its status but 401.
export async function send(method, path, { body, headers, signal } = {}) {
  for (let is_wrong = false; ; is_wrong = true) {
    const used = token();
    const sent = { ...headers };
    if (used) sent.authorization = `Bearer ${used}`;
    if (body !== undefined) sent["content-type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, { method, body, headers: sent, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      setReachable(false);
      throw new Unreachable("The server does not answer.");
    }
    setReachable(true);
    if (answer.status !== 401) return answer;
    await askForToken(is_wrong || Boolean(used), used);
    if (signal?.aborted) throw new DOMException("no longer wanted", "AbortError");
  }
}

async function refusalOf(answer) {
  const told = await answer.json().catch(() => ({}));
  return new Refusal(answer.status, told);
}

async function request(method, path, options) {
  const answer = await send(method, path, options);
  if (!answer.ok) throw await refusalOf(answer);
  try {
    const data = answer.status === 204 ? null : await answer.json();
    // Stored, and not yet active: whoever waits for it must know.
    if (answer.status === 202) throw new Refusal(202, { detail: data.pending });
    return { data, etag: answer.headers.get("etag") };
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Refusal) throw error;
    setReachable(false);
    throw new Unreachable("The answer broke off.");
  }
}

function query(given) {
  const kept = Object.entries(given ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

export const get = async (path, given, signal) => (await request("GET", `/admin/v1/${path}${query(given)}`, { signal })).data;
export const post = async (path, body, signal) =>
  (await request("POST", `/admin/v1/${path}`, { body: typeof body === "string" ? body : JSON.stringify(body), signal })).data;

const rulePath = (name) => `/admin/v1/rules/${encodeURIComponent(name)}`;

// One rule and the tag that an edit of it must name.
export const readRule = (name, signal) => request("GET", rulePath(name), { signal });
export const writeRule = (name, text, etag) =>
  request("PUT", rulePath(name), { body: text, headers: etag ? { "if-match": etag } : { "if-none-match": "*" } });
export const removeRule = (name, etag) => request("DELETE", rulePath(name), { headers: { "if-match": etag } });

// Overrides and bans: what they say tells which they are; `version` is what was read
// of one that is to be changed, and a new one must not be there yet.
export const writeEntry = (kind, entry, version) =>
  request("PUT", `/admin/v1/${kind}`, { body: JSON.stringify(entry), headers: version ? { "if-match": `"${version}"` } : { "if-none-match": "*" } });
export const removeEntry = (kind, given, version) => request("DELETE", `/admin/v1/${kind}${query(given)}`, { headers: { "if-match": `"${version}"` } });

// Events of a stream, one after the other, until it ends.
export async function* events(path, signal) {
  const answer = await send("GET", path, { signal, headers: { accept: "text/event-stream" } });
  if (!answer.ok) throw await refusalOf(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        if (data) yield JSON.parse(data);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setReachable(false);
    throw new Unreachable("The connection broke.");
  }
}

// Resolves when there is somebody to look and a server to ask: until then asking
// would only fill the console. Whoever follows the stream finds out about the latter.
function visibleAndReachable() {
  if (!is_lost && !document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (is_lost || document.hidden) return;
      connectivity.removeEventListener("back", look);
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    connectivity.addEventListener("back", look);
    document.addEventListener("visibilitychange", look);
  });
}

// Calls `work` now and every so often, never twice at a time; errors go to
// `failed`. Gives what ends it.
export function poll(ms, work, failed) {
  const stop = new AbortController();
  let timer;
  const round = async () => {
    await visibleAndReachable();
    if (stop.signal.aborted) return;
    try {
      await work(stop.signal);
    } catch (error) {
      if (stop.signal.aborted || error.name === "AbortError") return;
      if (!(error instanceof Unreachable)) failed(error);
    }
    if (!stop.signal.aborted) timer = setTimeout(round, ms);
  };
  round();
  return () => { stop.abort(); clearTimeout(timer); };
}
