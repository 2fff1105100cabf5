// Builds nodes. Data only ever becomes text or an attribute: no string is read
// as markup anywhere on this page.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// An element: functions among the attributes are listeners.
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

// An SVG element.
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// Replaces the children of `node`. The focused element keeps the focus if a new one has
// the same `data-key`.
export function replaceContent(node, ...children) {
  const key = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (key !== undefined) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// Whether the user is pressing a control or has selected text in `node`: replacing an
// element under the pointer loses the click.
export function isInteracting(node) {
  const chosen = getSelection();
  return node.querySelector(":active") !== null || (!chosen.isCollapsed && node.contains(chosen.anchorNode));
}

// Like `replaceContent`, for periodic updates: skipped while the user interacts with
// `node`.
export function refresh(node, ...children) {
  if (!isInteracting(node)) replaceContent(node, ...children);
}

// A table. A column is {label, cell(row), number?, unseen?}; on a phone every row is a
// card in which the labels stand beside the cells.
export function table(caption, columns, rows, attributes = {}) {
  const head = columns.map((column) => h("th", { scope: "col", class: column.number && "number" },
    column.unseen ? h("span", { class: "unseen" }, column.label) : column.label));
  const body = rows.map((row) => h("tr", attributes.row?.(row), columns.map((column) =>
    h("td", { class: column.number && "number", "data-label": column.label }, column.cell(row)))));
  return h("table", { class: "cards" }, h("caption", { class: attributes.unseen && "unseen" }, caption),
    h("thead", null, h("tr", null, head)), h("tbody", null, body));
}

// A group of toggle buttons, one of which is pressed.
export function buttonGroup(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button", "data-key": `${label} ${value}`, "aria-pressed": String(value === chosen),
    click: () => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(options[index][0] === value)));
      choose(value);
    },
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

// A bar of `part` between 0 and 1. It is beside a number that says the same.
export function meter(part, kind = "") {
  const bar = h("div", { class: `level ${kind}`, "aria-hidden": "true" }, h("div"));
  setMeter(bar, part);
  return bar;
}

export function setMeter(bar, part) {
  bar.style.setProperty("--level", `${(Math.min(Math.max(part, 0), 1) * 100).toFixed(1)}%`);
}

let fields = 0;

// A labelled control with a hint and an error message.
export function field(label, control, hint) {
  fields += 1;
  const id = `field-${fields}`;
  const fault = h("p", { class: "fault", id: `${id}-fault`, role: "alert" });
  const text = hint ? h("p", { class: "note", id: `${id}-hint` }, hint) : null;
  control.id = id;
  control.setAttribute("aria-describedby", text ? `${id}-fault ${id}-hint` : `${id}-fault`);
  return { node: h("div", { class: "field" }, h("label", { for: id }, label), control, fault, text), control, fault };
}

// Shows an error at a field; an empty `text` clears it.
export function setFieldError(one, text) {
  if (one.fault.textContent !== text) one.fault.textContent = text;
  if (text) one.control.setAttribute("aria-invalid", "true");
  else one.control.removeAttribute("aria-invalid");
}

// Announces text to screen readers.
export function announce(text) {
  document.getElementById("said").textContent = text;
}

// Shows a confirmation dialog; resolves to whether the user confirmed.
export function confirm(title, text, verb) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", cancel: (event) => { event.preventDefault(); close(false); } },
      h("form", { submit: (event) => { event.preventDefault(); close(true); } },
        h("h2", { id: "confirm-title" }, title), text,
        h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, verb),
          h("button", { type: "button", click: () => close(false) }, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
  });
}
