import * as api from "./api.js";
import { duration, el, put, repeat, table } from "./ui.js";

const SPANS = { 600: "10 minutes", 3600: "hour", 21600: "6 hours", 86400: "day" };
const PATH = "/operator/v1/whatif";

/** @param {import("./app.js").View} view */
export async function whatif(view) {
  let state = await api.ask("GET", PATH);
  if (view.signal.aborted) return;
  const answer = el("div", { role: "status" });
  const wrong = el("p", { class: "bad", role: "alert" });
  const last = /** @type {HTMLSelectElement} */ (el("select", {}, Object.entries(SPANS).map(([seconds, text]) =>
    el("option", { value: seconds, selected: seconds === "3600" }, `the last ${text}`))));
  const devices = /** @type {HTMLInputElement} */ (el("input", { type: "number", min: "1", max: "10000", placeholder: "as now" }));
  const boxes = state.policies.map((/** @type {string} */ name) =>
    /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", value: name, checked: name === "fcfs" || name === "mqfq_sticky" })));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    put(wrong);
    const policies = boxes.filter((/** @type {HTMLInputElement} */ box) => box.checked).map((/** @type {HTMLInputElement} */ box) => box.value);
    const question = { policies, lastSeconds: Number(last.value), devices: devices.value ? Number(devices.value) : null };
    try {
      state = await api.ask("POST", PATH, question);
      draw();
    } catch (error) {
      put(wrong, /** @type {Error} */ (error).message);
    }
  };
  const draw = () => put(answer, ...content(state));
  put(view.place, el("h1", {}, "What if"),
    el("p", {}, "What would another policy have done with the calls of this server?"),
    el("form", { onsubmit: submit },
      el("label", {}, "Calls of", last),
      el("label", {}, "Number of accelerators", devices),
      el("fieldset", {}, el("legend", {}, "Policies"), el("div", { class: "choices" },
        boxes.map((/** @type {HTMLInputElement} */ box) => el("label", { class: "check" }, box, box.value)))),
      el("div", {}, el("button", { class: "main" }, "Simulate")), wrong),
    answer);
  draw();
  repeat(view, async () => {
    if (state.phase !== "running") return;
    state = await api.ask("GET", PATH);
    if (!view.signal.aborted) draw();
  });
}

/** @param {any} state */
function content(state) {
  if (state.phase === "running") return [el("p", { class: "soft" }, "The calls are being simulated…")];
  if (state.phase === "failed") return [el("p", { class: "bad" }, state.error)];
  if (state.phase !== "done") return [];
  const { report } = state;
  const rows = [report.measured, ...report.simulated].map((row) => {
    const time = row.latency_s;
    return [row.name, ...[time.mean, time.p50, time.p95, time.p99, row.wait_s.mean].map(duration), row.cold_starts, row.refused];
  });
  return [
    table(`${report.measured.calls} calls`, ["policy", ">mean", ">p50", ">p95", ">p99", ">mean wait", ">cold starts", ">refused"], rows),
    el("p", {}, `Simulating the policy that ran gives ${difference(report.error)} compared with what was measured.`),
    report.left_out > 0 && el("p", { class: "soft" }, `Left out: ${report.left_out} calls that failed or had not ended.`),
    el("p", { class: "soft" }, "Callers that wait for an answer would have made their next calls at other times."),
  ];
}

/** @param {any} error */
function difference(error) {
  const parts = [["mean", error.mean], ["p95", error.p95], ["cold starts", error.cold_starts]];
  return parts.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))} %`).join(", ") || "no figures";
}
