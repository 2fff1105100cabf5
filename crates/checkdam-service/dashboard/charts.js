// SVG charts: stacked areas of allowed, denied, banned and store-unavailable requests,
// and a dashed line for what rules in shadow mode would have denied.

import { h, s } from "./dom.js";
import { NOT_ALLOWED, OUTCOMES, compact, count, dateTime, hourAndMinute, sum, timeOfDay } from "./format.js";

const EDGE = { left: 44, right: 8, top: 8, bottom: 22 };

// The smallest round number that is not below `value`.
function roundUp(value) {
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

// Grid lines and labels of a chart of `width` by `height` whose largest value is `top`.
function frame({ x, y, width, height, top, points, label }) {
  const lines = [0, 0.25, 0.5, 0.75, 1].flatMap((part) => [
    s("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(top * part), y2: y(top * part) }),
    s("text", { x: EDGE.left - 6, y: y(top * part) + 4, "text-anchor": "end" }, compact(top * part)),
  ]);
  const marks = (width < 480 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => {
    const index = Math.round((points - 1) * part);
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    return s("text", { x: x(index), y: height - 6, "text-anchor": anchor }, label(index));
  });
  return [...lines, ...marks];
}

// Stacked areas above the allowed requests, one per kind of denial. `y` converts a value of
// `series` to a height.
function denialAreas(series, x, y) {
  const heights = [...series.allowed];
  return NOT_ALLOWED.map((kind) => {
    const base = heights.map(y);
    series[kind].forEach((value, index) => { heights[index] += value; });
    return s("path", { class: kind, d: path(x, heights.map(y), base), visibility: series[kind].some(Boolean) ? "visible" : "hidden" });
  });
}

const sums = (series) => series.allowed.map((value, index) => NOT_ALLOWED.reduce((all, kind) => all + series[kind][index], value));

// A chart of OUTCOMES, each a list of counts of `step_s` seconds, the
// last of which ended at `end`.
export class TrafficChart {
  constructor() {
    this.shown = null;
    this.chosen = null;
    this.svg = s("svg", {
      class: "chart", tabindex: "0", role: "img",
      pointermove: (event) => this.point(event), pointerleave: () => this.choose(null), blur: () => this.choose(null), keydown: (event) => this.step(event),
    });
    this.values = new Map(Object.keys(OUTCOMES).map((kind) => [kind, h("strong")]));
    this.when = h("span", { class: "soft" });
    const keys = Object.entries(OUTCOMES).map(([kind, label]) => h("span", { class: "key" }, h("span", { class: `swatch ${kind}` }), label, this.values.get(kind)));
    this.node = h("div", { class: "stack" }, h("div", { class: "row legend" }, keys, this.when), this.svg);
    this.watcher = new ResizeObserver(() => this.paint());
    this.watcher.observe(this.svg);
  }

  end() {
    this.watcher.disconnect();
  }

  draw(series, end, step_s, label) {
    this.shown = { series, end, step_s, last: series.allowed.length - 1 };
    this.svg.setAttribute("aria-label", `${label}: ${describe(series)}. Use the arrow keys to read single points.`);
    this.paint();
  }

  time(index) {
    const { end, step_s, last } = this.shown;
    return (step_s >= 300 ? hourAndMinute : timeOfDay)(end - (last + 1 - index) * step_s);
  }

  paint() {
    if (!this.shown) return;
    const { series, step_s, last } = this.shown;
    const { allowed, shadow } = series;
    const width = Math.max(this.svg.clientWidth, 200);
    const height = Math.max(this.svg.clientHeight, 120);
    const per_s = (value) => value / step_s;
    const top = roundUp(Math.max(...sums(series).map(per_s), ...shadow.map(per_s)));
    const x = (index) => EDGE.left + ((width - EDGE.left - EDGE.right) * index) / Math.max(last, 1);
    const y = (value) => height - EDGE.bottom - ((height - EDGE.top - EDGE.bottom) * value) / top;
    const passed = allowed.map((value) => y(per_s(value)));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...frame({ x, y, width, height, top, points: last + 1, label: (index) => this.time(index) }),
      s("path", { class: "allowed", d: path(x, passed, allowed.map(() => y(0))) }),
      s("path", { class: "passed", d: path(x, passed) }),
      ...denialAreas(series, x, (value) => y(per_s(value))),
      s("path", { class: "shadow", d: path(x, shadow.map((value) => y(per_s(value)))), visibility: shadow.some(Boolean) ? "visible" : "hidden" }));
    if (this.chosen !== null) this.svg.append(s("line", { class: "at", x1: x(this.chosen), x2: x(this.chosen), y1: EDGE.top, y2: height - EDGE.bottom }));
    this.showPoint();
  }

  // Shows the values of the selected point, or of the last one.
  showPoint() {
    const { series, step_s, last } = this.shown;
    const index = Math.min(this.chosen ?? last, last);
    for (const [kind, node] of this.values) node.textContent = `${compact(series[kind][index] / step_s)}/s`;
    this.when.textContent = this.chosen === null ? "now" : `at ${this.time(index)}`;
  }

  choose(index) {
    this.chosen = index;
    this.paint();
  }

  point(event) {
    if (!this.shown) return;
    const box = this.svg.getBoundingClientRect();
    const part = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    this.choose(Math.round(Math.min(Math.max(part, 0), 1) * this.shown.last));
  }

  step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!this.shown || !(event.key in steps)) return;
    event.preventDefault();
    this.choose(Math.min(Math.max((this.chosen ?? this.shown.last) + steps[event.key], 0), this.shown.last));
  }
}

const describe = ({ allowed, limited, banned, unavailable, shadow }) =>
  `${count(sum(allowed))} allowed, ${count(sum(limited))} denied, ${count(sum(banned))} banned, ${count(sum(unavailable))} denied because the store was unavailable, ${count(sum(shadow))} would be denied by rules in shadow mode`;

// The numbers of the chart, as a table.
export function trafficRows(series, end, step_s) {
  const { length } = series.allowed;
  return series.allowed.map((_, index) => ({
    time: dateTime((end - (length - index) * step_s) * 1000), ...Object.fromEntries(Object.keys(OUTCOMES).map((kind) => [kind, series[kind][index]])),
  })).reverse();
}

// A small chart without labels; the numbers beside it have the same data.
export function sparkline(series) {
  const [width, height] = [120, 28];
  const { allowed } = series;
  const top = Math.max(1, ...sums(series));
  const x = (index) => (width * index) / Math.max(allowed.length - 1, 1);
  const y = (value) => height - 1 - ((height - 3) * value) / top;
  const passed = allowed.map((value) => y(value));
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "allowed", d: path(x, passed, allowed.map(() => y(0))) }),
    s("path", { class: "passed", d: path(x, passed) }),
    ...denialAreas(series, x, y));
}
