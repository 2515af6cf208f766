import * as api from "./api.js";
import { follow } from "./live.js";
import { announce, el, meter, put, shareOf, size, table } from "./ui.js";

/** @param {import("./app.js").View} view */
export async function settings(view) {
  const [found, namespaces] = await Promise.all([api.ask("GET", "/operator/v1/settings"), api.ask("GET", "/operator/v1/namespaces")]);
  if (view.signal.aborted) return;
  const doctor = el("div", { role: "status" }, el("p", { class: "soft" }, "The machine is being examined…"));
  const { store } = found;
  put(view.place, el("h1", {}, "Settings"),
    el("p", {}, `Aliquot ${found.version}, ${found.gateways === 1 ? "one process reads HTTP" : `${found.gateways} processes read HTTP`}`),
    table("Policies that run", ["kind", "policy", "parameters"], found.policies.map((/** @type {any} */ one) => [one.kind, one.name, parameters(one)])),
    el("h2", {}, "Weights"), weights(namespaces),
    table("Store and journal", ["what", "state"], [
      ["problem", store.problem ? el("span", { class: "bad" }, store.problem) : "none"],
      ["disk", store.lowOnSpace ? el("span", { class: "bad" }, "almost full") : "has space"],
      ["writes that wait", store.backlog],
      ...Object.entries(store.fileBytes).map(([name, bytes]) => [name, size(/** @type {number} */ (bytes))]),
      ["records are kept", `${store.keepDays} days, ${size(store.keepBytes)}`],
      ["the journal is kept", `${store.journalDays} days, ${size(store.journalBytes)}`]]),
    el("h2", {}, "Doctor"), doctor);
  try {
    const findings = await api.ask("GET", "/operator/v1/doctor");
    if (!view.signal.aborted) put(doctor, table("What this machine offers", ["there", "what", "details"], findings.map((/** @type {any} */ one) => [el("span", { class: one.ok ? undefined : "bad" }, one.ok ? "yes" : "no"), one.name, [one.detail, !one.ok && one.consequence ? el("div", { class: "soft" }, `so: ${one.consequence}`) : undefined]])));
  } catch (error) {
    if (!view.signal.aborted) put(doctor, el("p", { class: "bad" }, /** @type {Error} */ (error).message));
  }
}

/** @param {any} policy */
function parameters(policy) {
  const all = Object.entries(policy.parameters);
  if (!all.length) return el("span", { class: "soft" }, "none");
  return all.map(([name, value]) => el("div", {}, `${name} = ${value}`, policy.changed.includes(name) ? el("strong", {}, " (set)") : undefined));
}

/** @param {any[]} namespaces */
function weights(namespaces) {
  return el("div", {}, namespaces.map((one) => {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "number", min: "0.001", max: "1000", step: "any", value: one.weight, required: true }));
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        const changed = await api.ask("PATCH", `/operator/v1/namespaces/${encodeURIComponent(one.name)}`, { weight: Number(input.value) });
        input.value = changed.weight;
        announce(`${one.name} has the weight ${changed.weight}.`);
      } catch (error) {
        announce(/** @type {Error} */ (error).message);
      }
    };
    return el("form", { class: "filters", onsubmit: submit }, el("label", {}, `Weight of ${one.name}`, input), el("button", {}, "Set"));
  }));
}

/** @param {import("./app.js").View} view */
export async function nodes(view) {
  const content = el("div");
  put(view.place, el("h1", {}, "Nodes"), content);
  await follow(view, (state) => {
    const host = state.host_limit_bytes ? state.host_bytes / state.host_limit_bytes : 0;
    if (content.contains(document.activeElement)) return;
    put(content,
      el("section", { class: "panel" }, el("strong", {}, "This machine"), " ", el("span", { class: "soft" }, "the only node"),
        el("div", {}, `host memory claimed ${size(state.host_bytes)}${state.host_limit_bytes ? ` of ${size(state.host_limit_bytes)}` : ""}`), meter("host memory", host),
        el("div", {}, `${state.sandbox_count} sandboxes on ${state.devices.length} devices`)),
      table("Devices", ["device", "kind", ">runs", ">slots", ">shares asked", ">used", ">memory in use", ">memory", ">sandboxes"], state.devices.map((/** @type {any} */ one) => [
        one.name, one.kind, one.running, one.slots, shareOf(one.shares_used), shareOf(one.utilisation), size(one.resident_bytes), size(one.memory_bytes), one.sandboxes])));
  });
}
