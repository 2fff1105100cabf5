// The page frame: routing between views, connection status, colour theme and admin
// token.

import { connectivity, get } from "./api.js";
import * as bans from "./bans.js";
import * as changes from "./changes.js";
import { confirm, h } from "./dom.js";
import * as health from "./health.js";
import * as inspector from "./inspector.js";
import * as limited from "./top_subjects.js";
import { listen, restart, start } from "./live_traffic.js";
import * as overrides from "./overrides.js";
import * as overview from "./overview.js";
import * as rule from "./rule_editor.js";
import * as rules from "./rules.js";
import { forgetToken, token } from "./admin_token.js";
import { clearUnsaved, isUnsaved } from "./unsaved_changes.js";
import * as violations from "./violations.js";

const at = (id) => document.getElementById(id);
const VIEWS = { "": overview, limited, rules, overrides, bans, changes, violations, inspect: inspector, health };
// Views that are reached through another.
const WITHIN = { overrides: "rules", bans: "rules", changes: "rules" };
const THEME = "checkdam-theme";
let leave = () => {};

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Parses `#/VIEW/ITEM?QUERY`.
function route() {
  const hash = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  const [path, query] = hash.split("?", 2);
  const [name, ...rest] = path.split("/");
  const item = rest.length ? decoded(rest.join("/")) : null;
  return { name: Object.hasOwn(VIEWS, name) ? name : "", item, query: new URLSearchParams(query ?? "") };
}

function show(is_first) {
  leave();
  const { name, item, query } = route();
  const view = name === "rules" && item !== null ? rule : VIEWS[name];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (WITHIN[name] ?? name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const heading = h("h1", { tabindex: "-1" }, view.title(item));
  const actions = h("div", { class: "row" });
  const body = h("div", { class: "stack" });
  document.title = `${view.title(item)} · checkdam`;
  at("view").replaceChildren(h("div", { class: "row spread" }, heading, actions), body);
  leave = view.show({ body, actions, heading, item, query }) ?? (() => {});
  if (!is_first) {
    scrollTo(0, 0);
    heading.focus({ preventScroll: true });
  }
}

// Shows the view that the address names; asks first if there are unsaved edits.
async function move({ oldURL }) {
  if (isUnsaved()) {
    const wanted = location.hash;
    history.replaceState(null, "", oldURL);
    if (document.querySelector("dialog[open]")) return;
    if (!await confirm("Leave without saving?", h("p", null, "Your changes are not saved and would be lost."), "Leave")) return;
    clearUnsaved();
    location.hash = wanted;
    return;
  }
  show(false);
}

function banner(text) {
  at("banner").hidden = !text;
  if (at("banner").textContent !== text) at("banner").textContent = text;
}

// What the header says of the server's health.
function showStatus({ status, fault }) {
  if (fault) banner(fault);
  else if (!at("banner").dataset.lost) banner("");
  if (!status) return;
  const store = status.store ?? {};
  const [kind, text] = !status.ready ? ["bad", "not ready"]
    : store.is_open || store.is_away ? ["warn", "store unavailable"]
      : store.is_failing ? ["warn", "store fails intermittently"]
        : !status.rules_current ? ["warn", "rules outdated"]
          : status.warnings > 0 ? ["warn", status.warnings === 1 ? "1 warning" : `${status.warnings} warnings`]
            : status.audit?.dropped > 0 ? ["warn", "audit log incomplete"] : ["good", "healthy"];
  if (at("health-text").textContent !== text) {
    at("health").className = `pill ${kind}`;
    at("health-text").textContent = text;
  }
}

function watchConnection() {
  connectivity.addEventListener("lost", () => {
    at("banner").dataset.lost = "yes";
    at("health").className = "pill bad";
    at("health-text").textContent = "connection lost";
    banner("The connection to the server is lost. This page reconnects automatically; until then it may show old data.");
  });
  connectivity.addEventListener("back", () => {
    delete at("banner").dataset.lost;
    banner("");
    at("health-text").textContent = "connected";
  });
}

function prepareTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = at("theme");
  const paint = () => {
    const chosen = localStorage.getItem(THEME);
    if (chosen) document.documentElement.dataset.theme = chosen;
    const is_dark = chosen ? chosen === "dark" : dark.matches;
    button.textContent = is_dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${is_dark ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    const is_dark = button.textContent === "Light";
    localStorage.setItem(THEME, is_dark ? "light" : "dark");
    paint();
  });
  dark.addEventListener("change", paint);
  paint();
}

function prepareToken() {
  const paint = () => { at("leave").hidden = !token(); };
  document.addEventListener("token", paint);
  at("leave").addEventListener("click", () => {
    forgetToken();
    paint();
    restart();
    show(false);
  });
  paint();
}

function nameNode() {
  get("status").then(({ node, version }) => { at("node").textContent = `${node}, ${version}`; }).catch(() => {});
}

at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
watchConnection();
prepareTheme();
prepareToken();
addEventListener("hashchange", move);
listen(showStatus);
start();
nameNode();
show(true);
