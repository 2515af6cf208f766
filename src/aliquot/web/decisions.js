import * as api from "./api.js";
import { callLink, choice, clock, el, field, goTo, put, repeat, table } from "./ui.js";

const KINDS = ["", "Dispatch", "StartSandbox", "StopSandbox", "LoadMemory", "UnloadMemory", "SetSlice", "Reject", "Fail", "Promise", "BreakPromise", "Predict", "Fetch", "CancelFetch"];

/** @param {import("./app.js").View} view */
export async function decisions(view) {
  const wanted = (/** @type {string} */ name) => view.query.get(name) || "";
  const fields = {
    name: field("Function", wanted("name"), { type: "search", placeholder: "all" }),
    kind: choice("Command", wanted("kind"), KINDS, "all"),
    device: field("Device", wanted("device")),
    call: field("Call", wanted("call")),
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    goTo("decisions", Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, one.input.value.trim()])));
  };
  const list = el("div");
  put(view.place, el("h1", {}, "Decisions"),
    el("p", {}, "What the scheduler commanded, why, and for whom. The newest first."),
    el("form", { class: "filters", onsubmit: submit, role: "search" }, Object.values(fields).map((one) => one.shown), el("button", { class: "main" }, "Search")),
    list);
  const draw = async () => {
    const found = await api.ask("GET", `/api/v1/observe/decisions?${new URLSearchParams({ limit: "200", ...Object.fromEntries(view.query) })}`);
    if (!view.signal.aborted && !list.contains(document.activeElement)) put(list, ...decisionTable(found));
  };
  await draw();
  repeat(view, draw, 2000);
}

/** @param {any} found */
export function decisionTable(found) {
  const operator = Boolean(api.session && api.session.operator);
  const rows = found.decisions.map((/** @type {any} */ one) => [
    clock(one.at * 1000), one.kind, [operator && one.namespace, one.action].filter(Boolean).join("/"), one.sandbox ?? "", (one.devices || []).join(", "),
    [one.reason, one.roomFor ? el("div", { class: "soft" }, `to make room for ${one.roomFor}`) : undefined],
    one.activationId ? callLink(one.activationId, operator ? one.namespace : "") : ""]);
  const counts = Object.entries(found.kinds).map(([kind, count]) => `${kind} ${count}`).join(", ");
  return [
    el("p", { class: "soft" }, counts ? `Kept: ${counts}.` : "", found.complete ? "" : " The journal is still being read."),
    rows.length ? table(`The newest ${rows.length} decisions`, ["time", "command", "function", ">sandbox", "device", "why", "call"], rows) : el("p", { class: "soft" }, "No decisions."),
  ];
}
