// Traffic of the last minute, per second: one event stream shared by all views, closed
// while the page is hidden.

import { ApiError, Unreachable, events, get } from "./api.js";
import { OUTCOMES, byOutcome } from "./format.js";

const SECONDS = 60;
const LATEST_RETRY_MS = 15_000;
const NAMES = Object.keys(OUTCOMES);

const listeners = new Set();
const state = { end: 0, total: blank(), rules: new Map(), status: null, fault: "" };
let stop = null;

function blank() {
  return Object.fromEntries(NAMES.map((kind) => [kind, new Array(SECONDS).fill(0)]));
}

// What is known now: `end` is the Unix second at which the last point ends.
export const live = () => state;

// Calls `update` after every second. Returns a function that unsubscribes.
export function listen(update) {
  listeners.add(update);
  return () => listeners.delete(update);
}

function notify() {
  for (const update of listeners) update(state);
}

async function loadLastMinute(signal) {
  const { end, total, rules } = await get("traffic", { window: "minute" }, signal);
  state.end = end;
  state.total = byOutcome(total);
  state.rules = new Map(rules.map((rule) => [rule.rule, byOutcome(rule)]));
}

function push(series, tick) {
  for (const kind of NAMES) {
    series[kind].push(tick?.[kind] ?? 0);
    if (series[kind].length > SECONDS) series[kind].shift();
  }
}

// Missed seconds become empty points, and a second that is already known is ignored, so
// every point stays at its own time. If the server's clock was set back, the series
// starts again.
function applyTick(tick) {
  state.status = tick.status;
  const passed = tick.at - state.end;
  if (passed <= 0 && passed > -SECONDS) return;
  const missed = passed > 0 ? Math.min(passed - 1, SECONDS) : SECONDS;
  for (let second = 0; second < missed; second += 1) advance({}, []);
  advance(byOutcome(tick.total), tick.rules.map(byOutcome));
  state.end = tick.at;
}

function advance(total, rules) {
  push(state.total, total);
  const seen = new Map(rules.map((rule) => [rule.rule, rule]));
  for (const name of seen.keys()) if (!state.rules.has(name)) state.rules.set(name, { rule: name, ...blank() });
  for (const [name, series] of state.rules) {
    push(series, seen.get(name));
    // A rule without traffic for a minute is forgotten.
    if (!seen.has(name) && NAMES.every((kind) => series[kind].every((value) => value === 0))) state.rules.delete(name);
  }
}

async function followStream(signal) {
  let wait_ms = 1000;
  while (!signal.aborted) {
    try {
      await loadLastMinute(signal);
      notify();
      for await (const tick of events("/admin/v1/live", signal)) {
        wait_ms = 1000;
        state.fault = "";
        applyTick(tick);
        notify();
      }
    } catch (error) {
      if (signal.aborted) return;
      state.fault = error instanceof ApiError ? error.message : "";
      if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
      notify();
    }
    await new Promise((resolve) => { setTimeout(resolve, wait_ms); });
    wait_ms = Math.min(wait_ms * 2, LATEST_RETRY_MS);
  }
}

function begin() {
  if (stop || document.hidden) return;
  stop = new AbortController();
  followStream(stop.signal);
}

export function start() {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stop?.abort();
      stop = null;
    } else begin();
  });
  begin();
}

// Clears all data and reconnects: another user may be looking now.
export function restart() {
  stop?.abort();
  stop = null;
  Object.assign(state, { end: 0, total: blank(), rules: new Map(), status: null, fault: "" });
  begin();
}
