// Calls the admin API, with the token if there is one.

import { askForToken, token } from "./admin_token.js";

// The server rejected a request.
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The server responded with status ${status}.`);
    this.status = status;
    this.field = problem.field;
  }
}

// No response.
export class Unreachable extends Error {}

// Emits "lost" and "back" when the server becomes unreachable or reachable.
export const connectivity = new EventTarget();
let is_lost = false;

function setReachable(is_reached) {
  if (is_lost === !is_reached) return;
  is_lost = !is_reached;
  connectivity.dispatchEvent(new Event(is_lost ? "lost" : "back"));
}

// Sends a request and returns the response, whatever its status; on 401 asks for the
// token and retries.
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
      throw new Unreachable("The server does not respond.");
    }
    setReachable(true);
    if (answer.status !== 401) return answer;
    await askForToken(is_wrong || Boolean(used), used);
    if (signal?.aborted) throw new DOMException("no longer wanted", "AbortError");
  }
}

async function refusalOf(answer) {
  const problem = await answer.json().catch(() => ({}));
  return new ApiError(answer.status, problem);
}

async function request(method, path, options) {
  const answer = await send(method, path, options);
  if (!answer.ok) throw await refusalOf(answer);
  try {
    const data = answer.status === 204 ? null : await answer.json();
    // 202: stored but not active yet; reported like an error.
    if (answer.status === 202) throw new ApiError(202, { detail: data.pending });
    return { data, etag: answer.headers.get("etag") };
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    setReachable(false);
    throw new Unreachable("The response ended early.");
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

// Reads one rule, and the ETag that an edit must send in If-Match.
export const readRule = (name, signal) => request("GET", rulePath(name), { signal });
export const writeRule = (name, text, etag) =>
  request("PUT", rulePath(name), { body: text, headers: etag ? { "if-match": etag } : { "if-none-match": "*" } });
export const removeRule = (name, etag) => request("DELETE", rulePath(name), { headers: { "if-match": etag } });

// Overrides and bans are identified by their fields. `version` is the version that was
// read, for an edit; without it the entry must not exist yet.
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
    throw new Unreachable("The connection was lost.");
  }
}

// Resolves once the page is visible and the server reachable; polling earlier would
// only log errors. The live stream detects when the server is back.
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

// Calls `work` now and then every `ms`, never concurrently; errors go to `failed`.
// Returns a function that stops it.
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
