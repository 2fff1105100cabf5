// Charts drawn as SVG: stacked areas of what passed and what was limited, and a
// dashed line for what rules in shadow would have denied.

import { h, s } from "./dom.js";
import { brief, clock, count, hour, moment } from "./words.js";

const EDGE = { left: 44, right: 8, top: 8, bottom: 22 };
const KINDS = [["allowed", "Allowed"], ["limited", "Limited"], ["shadow", "Would be limited (shadow)"]];

// The smallest round number that is not below `value`.
function ceiling(value) {
  if (value <= 4) return 4;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((factor) => factor * unit).find((top) => top >= value);
}

// A path along `ys`, closed along `base`, or open if there is none.
function path(x, ys, base) {
  const line = (values, indexes) => indexes.map((index) => `${x(index).toFixed(1)} ${values[index].toFixed(1)}`).join("L");
  const there = ys.map((_, index) => index);
  const area = base ? `L${line(base, there.toReversed())}Z` : "";
  return `M${line(ys, there)}${area}`;
}

// A chart of {allowed, limited, shadow}, each a list of counts of `step_s` seconds, the
// last of which ended at `end`.
export function trafficChart() {
  const svg = s("svg", { class: "chart", tabindex: "0", role: "img" });
  const values = new Map(KINDS.map(([kind]) => [kind, h("strong")]));
  const when = h("span", { class: "soft" });
  const legend = h("div", { class: "row legend" },
    KINDS.map(([kind, label]) => h("span", { class: "key" }, h("span", { class: `swatch ${kind}` }), label, values.get(kind))), when);
  let shown = null;
  let chosen = null;

  const time = (index) => shown.end - (shown.series.allowed.length - index) * shown.step_s;
  const format = () => (shown.step_s >= 300 ? hour : clock);

  function tell() {
    const last = shown.series.allowed.length - 1;
    const index = chosen === null ? last : Math.min(chosen, last);
    for (const [kind, node] of values) node.textContent = `${brief(shown.series[kind][index] / shown.step_s)}/s`;
    when.textContent = chosen === null ? "now" : `at ${format()(time(index))}`;
  }

  function draw() {
    if (!shown) return;
    const width = Math.max(svg.clientWidth, 200);
    const height = Math.max(svg.clientHeight, 120);
    const { allowed, limited, shadow } = shown.series;
    const per_s = (value) => value / shown.step_s;
    const sums = allowed.map((value, index) => per_s(value + limited[index]));
    const top = ceiling(Math.max(...sums, ...shadow.map(per_s)));
    const x = (index) => EDGE.left + ((width - EDGE.left - EDGE.right) * index) / Math.max(allowed.length - 1, 1);
    const y = (value) => height - EDGE.bottom - ((height - EDGE.top - EDGE.bottom) * value) / top;
    const floor = allowed.map(() => y(0));
    const passed = allowed.map((value) => y(per_s(value)));
    const lines = [0, 0.25, 0.5, 0.75, 1].map((part) => [
      s("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(top * part), y2: y(top * part) }),
      s("text", { x: EDGE.left - 6, y: y(top * part) + 4, "text-anchor": "end" }, brief(top * part)),
    ]);
    const marks = (width < 480 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => {
      const index = Math.round((allowed.length - 1) * part);
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      return s("text", { x: x(index), y: height - 6, "text-anchor": anchor }, format()(time(index)));
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(...lines.flat(), ...marks,
      s("path", { class: "allowed", d: path(x, passed, floor) }),
      s("path", { class: "passed", d: path(x, passed) }),
      s("path", { class: "limited", d: path(x, sums.map(y), passed), visibility: limited.some(Boolean) ? "visible" : "hidden" }),
      s("path", { class: "shadow", d: path(x, shadow.map((value) => y(per_s(value)))), visibility: shadow.some(Boolean) ? "visible" : "hidden" }));
    if (chosen !== null) svg.append(s("line", { class: "at", x1: x(chosen), x2: x(chosen), y1: EDGE.top, y2: height - EDGE.bottom }));
    tell();
  }

  function choose(index) {
    chosen = index;
    draw();
  }

  svg.addEventListener("pointermove", (event) => {
    if (!shown) return;
    const box = svg.getBoundingClientRect();
    const part = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    choose(Math.round(Math.min(Math.max(part, 0), 1) * (shown.series.allowed.length - 1)));
  });
  svg.addEventListener("pointerleave", () => choose(null));
  svg.addEventListener("blur", () => choose(null));
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!shown || !(event.key in steps)) return;
    event.preventDefault();
    const last = shown.series.allowed.length - 1;
    choose(Math.min(Math.max((chosen ?? last) + steps[event.key], 0), last));
  });
  const watcher = new ResizeObserver(draw);
  watcher.observe(svg);

  return {
    node: h("div", { class: "stack" }, legend, svg),
    draw(series, end, step_s, label) {
      shown = { series, end, step_s };
      svg.setAttribute("aria-label", `${label}: ${inWords(series)}. Arrow keys read single points.`);
      draw();
    },
    end: () => watcher.disconnect(),
  };
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

const inWords = ({ allowed, limited, shadow }) =>
  `${count(sum(allowed))} allowed, ${count(sum(limited))} limited, ${count(sum(shadow))} would be limited by rules in shadow`;

// The same numbers for those who would rather read them.
export function trafficRows({ allowed, limited, shadow }, end, step_s) {
  return allowed.map((value, index) => ({
    time: moment((end - (allowed.length - index) * step_s) * 1000), allowed: value, limited: limited[index], shadow: shadow[index],
  })).reverse();
}

// A small chart without words, beside numbers that say the same.
export function sparkline({ allowed, limited }) {
  const [width, height] = [120, 28];
  const top = Math.max(1, ...allowed.map((value, index) => value + limited[index]));
  const x = (index) => (width * index) / Math.max(allowed.length - 1, 1);
  const y = (value) => height - 1 - ((height - 3) * value) / top;
  const passed = allowed.map((value) => y(value));
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "allowed", d: path(x, passed, allowed.map(() => y(0))) }),
    s("path", { class: "passed", d: path(x, passed) }),
    limited.some(Boolean) && s("path", { class: "limited", d: path(x, allowed.map((value, index) => y(value + limited[index])), passed) }));
}
