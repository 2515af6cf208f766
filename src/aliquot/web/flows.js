import * as api from "./api.js";
import { asTable } from "./charts.js";
import { follow } from "./live.js";
import { duration, el, goTo, meter, put, shareOf, table, field } from "./ui.js";

const MAX_SHOWN = 200;

/** @param {import("./app.js").View} view */
export async function flows(view) {
  const operator = Boolean(api.session && api.session.operator);
  const name = field("Function", view.query.get("name") || "", { type: "search", placeholder: "all" });
  const content = el("div");
  put(view.place, el("h1", {}, "Flows"),
    el("p", {}, "A flow is the queue of one function. The policy chooses the next call by its virtual time or by its deadline."),
    el("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); goTo("flows", { name: name.input.value.trim() }); } }, name.shown, el("button", { class: "main" }, "Search")),
    content);
  await follow(view, (state) => {
    if (!content.contains(document.activeElement)) put(content, ...tables(state, operator, name.input.value.trim()));
  });
}

/**
 * @param {any} state
 * @param {boolean} operator
 * @param {string} wanted
 */
function tables(state, operator, wanted) {
  const chosen = state.flows.filter((/** @type {any} */ flow) => flow.function.includes(wanted));
  const rows = [...chosen].sort((a, b) => b.queued + b.in_flight - a.queued - a.in_flight || b.arrivals - a.arrivals).slice(0, MAX_SHOWN);
  const least = Math.min(...chosen.filter((/** @type {any} */ flow) => flow.queued || flow.in_flight).map((/** @type {any} */ flow) => flow.virtual_time ?? Infinity));
  const heads = [...(operator ? ["namespace"] : []), "function", ">waiting", ">running", ">sandboxes", ">weight", ...(operator ? [">virtual time", ">lag"] : []), ">run estimate", "calls"];
  const made = rows.map((flow) => [
    ...(operator ? [flow.tenant] : []), el("a", { href: `#/function/${encodeURIComponent(flow.function)}${operator ? `?namespace=${encodeURIComponent(flow.tenant)}` : ""}` }, flow.function),
    flow.queued, flow.in_flight, flow.sandboxes, flow.weight,
    ...(operator ? [number(flow.virtual_time), Number.isFinite(least) && (flow.queued || flow.in_flight) ? number(flow.virtual_time - least) : ""] : []),
    duration(flow.run_estimate_s), el("a", { href: `#/activations?name=${encodeURIComponent(flow.function)}`, "data-row": "" }, "show")]);
  return [
    operator && fairness(state.tenants || []),
    made.length ? table(`${made.length} of ${state.flow_count} flows`, heads, made) : el("p", { class: "soft" }, "No flow has this name."),
  ];
}

/** @param {any[]} tenants */
function fairness(tenants) {
  const parts = ["accelerators", "cpu"].map((kind) => {
    const rivals = tenants.filter((one) => one.on === kind && one.got_60s !== null);
    if (!rivals.length) return undefined;
    const ratios = rivals.map((one) => one.got_60s / (one.due_60s || 1));
    const index = jain(ratios);
    return el("section", { class: "panel" },
      el("strong", {}, `Service against due, last minute, on ${kind}`),
      el("p", {}, "Jain's index: ", el("strong", {}, index.toFixed(3)), el("span", { class: "soft" }, " (1: all got what their weights are due)")),
      rivals.map((one) => [el("div", {}, `${one.tenant}: got ${shareOf(one.got_60s)}, due ${shareOf(one.due_60s)}`), meter(`${one.tenant} got`, one.got_60s)]),
      asTable("Service against due", ["namespace", ">weight", ">due", ">got"], rivals.map((one) => [one.tenant, one.weight, shareOf(one.due_60s), shareOf(one.got_60s)])));
  });
  return parts.some(Boolean) ? el("div", { class: "cards" }, parts) : el("p", { class: "soft" }, "Nothing ran in the last minute.");
}

/** @param {number[]} values */
function jain(values) {
  const squares = values.reduce((sum, value) => sum + value * value, 0);
  return squares ? values.reduce((sum, value) => sum + value, 0) ** 2 / (values.length * squares) : 1;
}

/** @param {number | null | undefined} value */
function number(value) {
  return value === null || value === undefined ? "" : String(Number(value.toPrecision(4)));
}
