/** Charts as SVG, each with its numbers as a table. Colours come from the style sheet. */

import { clock, duration, el, svg, table } from "./ui.js";

const WIDTH = 1000;
const HEIGHT = 160;
const MAX_TABLE_ROWS = 120;
const MAX_COLOURS = 8;

/** @typedef {{name: string, values: number[]}} Line */

/**
 * @param {string} title
 * @param {number[]} times seconds since the epoch
 * @param {Line[]} lines
 * @param {(value: number) => string} format
 */
export function lineChart(title, times, lines, format = (value) => String(Number(value.toPrecision(3)))) {
  const highest = Math.max(0, ...lines.flatMap((line) => line.values)) || 1;
  const x = (/** @type {number} */ at) => (times.length > 1 ? (at / (times.length - 1)) * WIDTH : 0);
  const y = (/** @type {number} */ value) => HEIGHT - 2 - (value / highest) * (HEIGHT - 8);
  const drawn = lines.map((line, number) => svg("polyline", { class: `line c${number % MAX_COLOURS}`, points: line.values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  const newest = lines.map((line) => `${line.name} ${format(line.values.at(-1) || 0)}`).join(", ");
  const rows = times.map((time, at) => [clock(time * 1000), ...lines.map((line) => format(line.values[at]))]).slice(-MAX_TABLE_ROWS).reverse();
  return el("figure", { class: "chart" },
    el("figcaption", {}, title, " ", el("span", { class: "soft" }, `highest ${format(highest)}`), legend(lines.map((line) => line.name))),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${newest}` },
      svg("line", { class: "axis", x1: 0, y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1 }), drawn),
    el("div", { class: "ends soft" }, el("span", {}, times.length ? clock(times[0] * 1000) : ""), el("span", {}, times.length ? clock(times[times.length - 1] * 1000) : "")),
    asTable(title, ["time", ...lines.map((line) => `>${line.name}`)], rows));
}

/** @param {string[]} names */
function legend(names) {
  return el("div", { class: "legend" }, names.map((name, number) => el("span", {}, svg("svg", { viewBox: "0 0 10 10", class: "key", "aria-hidden": "true" }, svg("rect", { class: `c${number % MAX_COLOURS}`, width: 10, height: 10 })), name)));
}

/**
 * @param {string} title
 * @param {string[]} heads
 * @param {any[][]} rows
 */
export function asTable(title, heads, rows) {
  return el("details", {}, el("summary", {}, "As a table"), rows.length ? table(title, heads, rows) : el("p", { class: "soft" }, "Nothing yet."));
}

/**
 * What the sandboxes of a device did over time: a row for each sandbox, a colour for each namespace.
 * @param {any} told the answer of the route `slices`
 */
export function deviceSlices(told) {
  const names = [...new Set(told.devices.flatMap((/** @type {any} */ one) => one.slices.map((/** @type {any} */ each) => each.namespace)))].sort();
  if (!told.devices.length) return [el("p", { class: "soft" }, "Nothing ran in this time.")];
  const whole = told.end - told.begin;
  return [
    legend(names),
    told.devices.map((/** @type {any} */ one) => oneDevice(one, told.begin, whole, names)),
    el("div", { class: "ends soft" }, el("span", {}, clock(told.begin * 1000)), el("span", {}, clock(told.end * 1000))),
  ];
}

/**
 * @param {any} one
 * @param {number} begin
 * @param {number} whole
 * @param {string[]} names
 */
function oneDevice(one, begin, whole, names) {
  const numbers = [...new Set(one.slices.map((/** @type {any} */ each) => each.sandbox))].sort((a, b) => a - b);
  const row = 14;
  const bars = one.slices.map((/** @type {any} */ each) => {
    const from = ((each.begin - begin) / whole) * WIDTH;
    const wide = Math.max(1.2, ((each.end - each.begin) / whole) * WIDTH);
    const colour = names.indexOf(each.namespace) % MAX_COLOURS;
    return svg("rect", { class: `slice ${each.activity} c${colour}`, x: from.toFixed(2), y: numbers.indexOf(each.sandbox) * row + 2, width: wide.toFixed(2), height: row - 4 });
  });
  const busy = `${Math.round((100 * one.busy) / whole)} % of the time something ran or started`;
  const rows = one.slices.slice(-MAX_TABLE_ROWS).reverse().map((/** @type {any} */ each) => [
    clock(each.begin * 1000), each.sandbox, each.activity, [each.namespace, each.action].filter(Boolean).join("/"), duration(each.end - each.begin), each.count || 1]);
  return el("figure", { class: "chart device" },
    el("figcaption", {}, el("strong", {}, one.device), " ", el("span", { class: "soft" }, busy)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${numbers.length * row}`, preserveAspectRatio: "none", role: "img", "aria-label": `${one.device}: ${busy}` }, bars),
    asTable(`Runs on ${one.device}`, ["begin", ">sandbox", "what", "function", ">time", ">runs"], rows));
}
