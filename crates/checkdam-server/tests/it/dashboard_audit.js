// Says what makes the page that is shown hard to use: for screen readers, for the keyboard, for weak eyes, on a phone.
const faults = [];
const blame = (node, text) => faults.push(`${text}: ${node.outerHTML.slice(0, 120)}`);
const isShown = (node) => node.getClientRects().length > 0 && getComputedStyle(node).visibility !== "hidden";
const all = (selector) => [...document.querySelectorAll(selector)].filter(isShown);
const nameOf = (node) => (node.getAttribute("aria-label") ?? node.textContent).trim();

if (!document.documentElement.lang) faults.push("the page has no language");
if (document.documentElement.scrollWidth > innerWidth) {
  const wide = all("main *").filter((node) => node.getBoundingClientRect().right > innerWidth + 1);
  faults.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${innerWidth}`);
  wide.slice(-2).forEach((node) => blame(node, "too wide"));
}
if (all("h1").length !== 1) faults.push(`there are ${all("h1").length} first headings`);
let last = 1;
for (const heading of all("h1, h2, h3, h4")) {
  const depth = Number(heading.tagName[1]);
  if (depth > last + 1) blame(heading, "a heading leaves out a level");
  last = depth;
}
for (const control of all("input, select, textarea")) {
  const has_label = control.labels.length > 0 || control.getAttribute("aria-label");
  if (!has_label) blame(control, "a control without a label");
}
for (const one of all("a, button, summary")) if (!nameOf(one)) blame(one, "nothing says what it does");
for (const picture of all("img")) if (!picture.hasAttribute("alt")) blame(picture, "a picture without a text");
for (const drawing of all("svg")) {
  const is_told = drawing.getAttribute("aria-hidden") === "true" || (drawing.getAttribute("role") === "img" && drawing.getAttribute("aria-label"));
  if (!is_told) blame(drawing, "a drawing without a text");
}
for (const table of all("table")) {
  if (!table.caption?.textContent) blame(table, "a table without a caption");
  if ([...table.querySelectorAll("th")].some((head) => !head.scope || !head.textContent)) blame(table, "a table whose heads say too little");
}
const ids = all("[id]").map((node) => node.id);
ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => faults.push(`two elements are called ${id}`));
for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) blame(node, "it jumps the queue of the focus");

// Contrast by WCAG: 4.5 for text, 3 where it is large.
const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
const light = ([red, green, blue]) => [red, green, blue].map((part) => part / 255)
  .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
function ground(node) {
  for (let at = node; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
const texts = all("body *").filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
for (const node of texts.filter((node) => !node.closest("svg, .unseen, .skip, :disabled, noscript, datalist, option"))) {
  const style = getComputedStyle(node);
  const [one, other] = [light(parts(style.color)), light(ground(node))].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize);
  const is_large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const contrast = (one + 0.05) / (other + 0.05);
  if (contrast < (is_large ? 3 : 4.5)) blame(node, `a contrast of only ${contrast.toFixed(2)}`);
}
return faults.slice(0, 12);
