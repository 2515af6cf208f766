import * as api from "./api.js";
import { duration, el, put, repeat, table } from "./ui.js";

/** @param {import("./app.js").View} view */
export async function figures(view) {
  const namespace = view.query.get("namespace") || (api.session && api.session.operator ? api.chosen : "");
  const query = new URLSearchParams({ name: view.argument, last: "21600", ...(namespace ? { namespace } : {}) });
  const content = el("div");
  put(view.place, el("h1", {}, view.argument), content);
  const draw = async () => {
    const found = await api.ask("GET", `/api/v1/observe/figures?${query}`);
    if (!view.signal.aborted && !content.contains(document.activeElement)) put(content, ...numbers(found));
  };
  await draw();
  repeat(view, draw, 5000);
}

/** @param {any} found */
function numbers(found) {
  if (!found.calls) return [el("p", { class: "soft" }, "It had no calls in the last six hours.")];
  const starts = Object.entries(found.starts).sort((a, b) => b[1] - a[1]);
  const begun = starts.reduce((sum, [, count]) => sum + count, 0);
  const times = (/** @type {string} */ name, /** @type {any} */ one) => [name, ...["mean", "p50", "p95", "p99", "max"].map((part) => duration(one[part]))];
  return [
    el("p", {}, `${found.calls} calls in the last six hours, ${found.failed} failed. They took ${duration(found.deviceSeconds)} of devices. `,
      el("a", { href: `#/activations?name=${encodeURIComponent(found.action)}` }, "Show them")),
    table("Times", ["of what", ">mean", ">p50", ">p95", ">p99", ">longest"], [times("from arrival to end", found.latency), times("wait", found.wait), times("run", found.run)]),
    table("Starts", ["start", ">calls", ">part"], starts.map(([name, count]) => [name.replace("_", " "), count, `${Math.round((100 * count) / begun)} %`])),
    Object.keys(found.coldCauses).length > 0 && table("Why they were not warm", ["cause", ">calls"], Object.entries(found.coldCauses)),
    Object.keys(found.devices).length > 0 && table("Devices", ["device", ">calls"], Object.entries(found.devices)),
  ];
}
