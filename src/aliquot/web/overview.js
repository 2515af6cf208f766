import * as api from "./api.js";
import { deviceSlices, lineChart } from "./charts.js";
import { follow } from "./live.js";
import { duration, el, meter, put, repeat, shareOf, size, table } from "./ui.js";

const SPANS = { 60: "1 minute", 600: "10 minutes", 3600: "1 hour" };
const RENEW_MS = 3000;
const MAX_SHOWN = 50;

/** @param {import("./app.js").View} view */
export async function overview(view) {
  const operator = Boolean(api.session && api.session.operator);
  const last = Object.keys(SPANS).includes(view.query.get("last") || "") ? Number(view.query.get("last")) : 60;
  const head = el("div");
  const past = el("div");
  const rest = el("div");
  put(view.place, el("h1", {}, "Overview"), head, past, rest);
  const drawPast = async () => {
    const step = last > 1200 ? 60 : 1;
    const [ran, counted] = await Promise.all([
      api.ask("GET", `/api/v1/observe/slices?last=${last}`),
      api.ask("GET", `/api/v1/observe/series?last=${last}&step=${step}`),
    ]);
    if (view.signal.aborted || past.contains(document.activeElement) || past.querySelector("details[open]")) return;
    const { times, values } = counted;
    const each = (/** @type {string} */ name) => ({ name: name.replace("_s", ""), values: values[name] });
    put(past,
      el("h2", {}, "What ran where"), spans(last), deviceSlices(ran),
      el("h2", {}, "Calls over time"),
      el("div", { class: "charts" },
        lineChart(step === 1 ? "Calls per second" : "Calls per minute", times, [each("arrivals"), each("failed"), { name: "cold starts", values: values.cold }]),
        lineChart("Waiting and running", times, [{ name: "waiting", values: values.queued }, each("running")])));
  };
  await follow(view, (state) => {
    put(head, ...summary(state));
    if (!rest.contains(document.activeElement)) put(rest, ...tables(state, operator));
  });
  repeat(view, drawPast, last > 60 ? 5 * RENEW_MS : RENEW_MS);
  await drawPast();
}

/** @param {number} last */
function spans(last) {
  return el("p", {}, Object.entries(SPANS).map(([seconds, text]) =>
    [el("a", { href: `#/overview?last=${seconds}`, "aria-current": Number(seconds) === last ? "true" : undefined }, `last ${text}`), " "]));
}

/** @param {any} state */
function summary(state) {
  return [
    state.stopping && el("p", { class: "bad" }, "The server is stopping."),
    el("p", {}, `${state.queued} calls wait, ${state.in_flight} run`, state.queued_others ? `; ${state.queued_others} of others wait` : "", ". ",
      el("span", { class: "soft" }, `Policies: ${state.policies.join(", ")}`)),
    el("div", { class: "cards" }, state.devices.map(device)),
  ];
}

/** @param {any} one */
function device(one) {
  const memory = one.memory_bytes ? one.resident_bytes / one.memory_bytes : 0;
  const used = one.utilisation === null || one.utilisation === undefined ? "" : `, used ${shareOf(one.utilisation)}`;
  const lent = one.lent ? `, lent ${shareOf(one.lent)}` : "";
  return el("section", { class: "panel", "aria-label": `Device ${one.name}` },
    el("strong", {}, one.name), " ", el("span", { class: "soft" }, one.kind),
    el("div", {}, `runs ${one.running} of ${one.slots}`, one.others ? ` (${one.others} of others)` : ""),
    meter(`${one.name} runs`, one.slots ? one.running / one.slots : 0),
    el("div", {}, `shares: asked ${shareOf(one.shares_used)}${used}${lent}`),
    meter(`${one.name} shares`, one.shares_used),
    one.memory_bytes ? [el("div", {}, `memory ${size(one.resident_bytes)} of ${size(one.memory_bytes)}`), meter(`${one.name} memory`, memory)] : undefined);
}

/**
 * @param {any} state
 * @param {boolean} operator
 */
function tables(state, operator) {
  const flows = [...state.flows].sort((a, b) => b.queued + b.in_flight - a.queued - a.in_flight || b.arrivals - a.arrivals).slice(0, MAX_SHOWN);
  const heads = [...(operator ? ["namespace"] : []), "function", ">waiting", ">running", ">sandboxes", ">calls so far", ">run estimate", ">weight"];
  const rows = flows.map((flow) => [
    ...(operator ? [flow.tenant] : []), flow.misfit ? [flow.function, el("div", { class: "bad" }, flow.misfit)] : flow.function,
    flow.queued, flow.in_flight, flow.sandboxes, flow.arrivals, duration(flow.run_estimate_s), flow.weight]);
  const boxes = state.sandboxes.slice(0, MAX_SHOWN).map((/** @type {any} */ one) => [
    one.sandbox, ...(operator ? [one.tenant] : []), one.function, one.device, one.state, one.uses]);
  return [
    rows.length ? table(`The busiest ${rows.length} of ${state.flow_count} functions`, heads, rows)
      : el("p", {}, "There is no function yet. ", el("a", { href: "#/start" }, "First steps")),
    boxes.length > 0 && table(`${boxes.length} of ${state.sandbox_count} sandboxes`, ["sandbox", ...(operator ? ["namespace"] : []), "function", "device", "state", ">calls"], boxes),
  ];
}
