// Builds the page from /openapi.json. Text from the server is only ever set
// as text, never as markup.
"use strict";

const at = (id) => document.getElementById(id);
let endpoints = [];

async function start() {
  const answer = await fetch("/openapi.json");
  const api = await answer.json();
  at("about").textContent = `${api.info.version}. ${api.info.description.split("\n")[0]}`;
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      endpoints.push({ path, method: method.toUpperCase(), operation });
    }
  }
  // What can be asked comes before what only tells.
  endpoints.sort((one, other) => Boolean(other.operation.requestBody) - Boolean(one.operation.requestBody));
  endpoints.forEach(({ path, method }, index) => at("endpoint").add(new Option(`${method} ${path}`, index)));
  at("endpoint").addEventListener("change", choose);
  at("body").addEventListener("input", judge);
  at("ask").addEventListener("submit", send);
  at("copy").addEventListener("click", copy);
  choose();
  showReadiness();
}

function chosen() {
  return endpoints[Number(at("endpoint").value)];
}

function examplesOf(operation) {
  const content = operation.requestBody?.content?.["application/json"];
  if (content?.examples) {
    return Object.entries(content.examples).map(([name, example]) => [name, example.value]);
  }
  return content?.example ? [["example", content.example]] : [];
}

function choose() {
  const { operation } = chosen();
  at("summary").textContent = operation.summary ?? "";
  at("with-body").hidden = !operation.requestBody;
  const examples = examplesOf(operation);
  at("examples").replaceChildren(...(examples.length > 1 ? examples : []).map(([name, value]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "example";
    button.textContent = name;
    button.addEventListener("click", () => fill(value));
    return button;
  }));
  fill(examples[0]?.[1]);
}

function fill(value) {
  at("body").value = value === undefined ? "" : JSON.stringify(value, null, 2);
  judge();
}

// Broken JSON may be sent all the same: the server's answer is worth seeing.
function judge() {
  let fault = "";
  if (!at("with-body").hidden) {
    try {
      JSON.parse(at("body").value);
    } catch (error) {
      fault = `Not JSON: ${error.message}`;
    }
  }
  at("fault").textContent = fault;
}

async function send(event) {
  event.preventDefault();
  const { path, method, operation } = chosen();
  const times = Math.min(Math.max(Number(at("times").value) || 1, 1), 1000);
  const counts = new Map();
  const options = { method, cache: "no-store" };
  if (operation.requestBody) {
    options.body = at("body").value;
    options.headers = { "content-type": "application/json" };
  }
  try {
    let answer;
    let text;
    for (let sent = 0; sent < times; sent += 1) {
      answer = await fetch(path, options);
      text = await answer.text();
      counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1);
    }
    show(answer, text, counts);
  } catch (error) {
    at("status").className = "bad";
    at("status").textContent = `The server does not answer: ${error.message}`;
  }
  showReadiness();
}

function show(answer, text, counts) {
  const line = at("status");
  line.className = answer.ok ? "good" : "bad";
  line.textContent = `${answer.status} ${answer.statusText}`;
  if ([...counts.values()].reduce((sum, count) => sum + count) > 1) {
    line.textContent += ` (${[...counts].map(([status, count]) => `${count} × ${status}`).join(", ")})`;
  }
  const rows = [...answer.headers].map(([name, value]) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    const cell = document.createElement("td");
    head.scope = "row";
    head.textContent = name;
    cell.textContent = value;
    row.append(head, cell);
    return row;
  });
  at("headers").tBodies[0].replaceChildren(...rows);
  at("headers").hidden = false;
  at("answer").textContent = pretty(text);
  at("answer").hidden = false;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function copy() {
  const { path, method, operation } = chosen();
  let line = `curl -i ${location.origin}${path}`;
  if (operation.requestBody) {
    let body = at("body").value;
    try {
      body = JSON.stringify(JSON.parse(body));
    } catch {
      // What is not JSON is copied as it stands.
    }
    line += ` -d '${body.replaceAll("'", "'\\''")}'`;
  } else if (method !== "GET") {
    line += ` -X ${method}`;
  }
  try {
    await navigator.clipboard.writeText(line);
    at("fault").textContent = "";
    at("copy").textContent = "Copied";
    setTimeout(() => { at("copy").textContent = "Copy as curl"; }, 1500);
  } catch {
    at("fault").textContent = line;
  }
}

async function showReadiness() {
  try {
    const answer = await fetch("/readyz", { cache: "no-store" });
    at("ready").className = answer.ok ? "good" : "bad";
    at("ready").textContent = (await answer.json()).status;
  } catch {
    at("ready").className = "bad";
    at("ready").textContent = "unreachable";
  }
}

start().catch((error) => {
  at("about").textContent = `The API could not be read: ${error.message}`;
});
