import * as api from "./api.js";
import { announce, duration, el, meter, put, size, table } from "./ui.js";

/** @typedef {{place: HTMLElement, argument: string, query: URLSearchParams, signal: AbortSignal, failed: (error: Error) => void}} View */

const EVERY_MS = 1000;

/**
 * Repeats a task until the page is left, and rests while the tab is hidden.
 * @param {View} view
 * @param {() => Promise<void>} task
 */
export function repeat(view, task, everyMs = EVERY_MS) {
  const turn = async () => {
    if (view.signal.aborted) return;
    if (!document.hidden) await task().then(() => announce(""), view.failed);
    setTimeout(turn, everyMs);
  };
  setTimeout(turn, everyMs);
}

/** @param {View} view */
export async function overview(view) {
  const operator = api.session && api.session.operator;
  const draw = async () => {
    const status = await api.ask("GET", operator ? "/operator/v1/status" : "/api/v1/observe/overview");
    if (!view.signal.aborted) put(view.place, ...content(status, Boolean(operator)));
  };
  await draw();
  repeat(view, draw);
}

/**
 * @param {any} status
 * @param {boolean} operator
 */
function content(status, operator) {
  const flows = [...status.flows].sort((a, b) => b.queued + b.in_flight - a.queued - a.in_flight);
  const waiting = flows.reduce((sum, flow) => sum + flow.queued, 0);
  const running = flows.reduce((sum, flow) => sum + flow.in_flight, 0);
  return [
    el("h1", {}, "Overview"),
    status.stopping && el("p", { class: "bad" }, "The server is stopping."),
    el("p", {}, `${waiting} calls wait, ${running} run. `, el("span", { class: "soft" }, `Policies: ${status.policies.join(", ")}`)),
    el("div", { class: "cards" }, status.devices.map(device)),
    flows.length ? functionTable(flows, operator) : firstSteps(),
    operator && status.tenants && status.tenants.length ? tenantTable(status.tenants) : undefined,
    status.sandboxes.length ? sandboxTable(status.sandboxes, operator) : undefined,
  ];
}

/** @param {any} one */
function device(one) {
  const memory = one.memory_bytes ? one.resident_bytes / one.memory_bytes : 0;
  return el("section", { class: "panel", "aria-label": `Device ${one.name}` },
    el("strong", {}, one.name), " ", el("span", { class: "soft" }, one.kind),
    el("div", {}, `runs ${one.running} of ${one.slots}`, one.others ? ` (${one.others} of others)` : ""),
    meter(`${one.name} runs`, one.slots ? one.running / one.slots : 0),
    el("div", {}, `shares in use ${Math.round(100 * one.shares_used)} %`),
    meter(`${one.name} shares`, one.shares_used),
    one.memory_bytes ? [el("div", {}, `memory ${size(one.resident_bytes)} of ${size(one.memory_bytes)}`), meter(`${one.name} memory`, memory)] : undefined);
}

/**
 * @param {any[]} flows
 * @param {boolean} operator
 */
function functionTable(flows, operator) {
  const heads = [...(operator ? ["tenant"] : []), "function", ">waiting", ">running", ">sandboxes", ">calls so far", ">run estimate", ">weight"];
  return table("Functions", heads, flows.map((flow) => [
    ...(operator ? [flow.tenant] : []),
    flow.misfit ? [flow.function, el("div", { class: "bad" }, flow.misfit)] : flow.function,
    flow.queued, flow.in_flight, flow.sandboxes, flow.arrivals, duration(flow.run_estimate_s), flow.weight,
  ]));
}

/** @param {any[]} tenants */
function tenantTable(tenants) {
  const fields = Object.keys(tenants[0]);
  const cell = (/** @type {unknown} */ value) => (typeof value === "number" ? Number(value.toPrecision(3)) : value);
  return table("Tenants: due and got parts", fields.map((field) => (typeof tenants[0][field] === "number" ? ">" : "") + field.replaceAll("_", " ")),
    tenants.map((tenant) => fields.map((field) => cell(tenant[field]))));
}

/**
 * @param {any[]} sandboxes
 * @param {boolean} operator
 */
function sandboxTable(sandboxes, operator) {
  const heads = ["sandbox", ...(operator ? ["tenant"] : []), "function", "device", "state", ">calls"];
  return table("Sandboxes", heads, sandboxes.map((one) => [
    one.sandbox, ...(operator ? [one.tenant] : []), one.function, one.device, one.state, one.uses]));
}

function firstSteps() {
  return el("section", { class: "panel" },
    el("h2", {}, "First steps"),
    el("p", {}, "There is no function yet. Write one, and deploy it:"),
    el("pre", { tabindex: "0" }, 'import aliquot\n\napp = aliquot.App("tiny")\n\n\n@app.function(gpu=0.5)\ndef greet(name: str = "you"):\n    return f"Hello, {name}"\n'),
    el("pre", { tabindex: "0" }, "aliquot deploy tiny.py\naliquot invoke tiny.greet"));
}
