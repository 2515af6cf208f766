import * as api from "./api.js";
import { follow } from "./live.js";
import { clock, duration, el, put, repeat, shareOf, table } from "./ui.js";

/** @param {import("./app.js").View} view */
export async function forecasts(view) {
  const expected = el("div");
  const held = el("div");
  put(view.place, el("h1", {}, "Forecasts and holds"), expected, held);
  await follow(view, (state) => put(expected, ...forecastTable(state.forecasts)));
  const draw = async () => {
    const found = await api.ask("GET", "/api/v1/observe/decisions?kind=StartSandbox&limit=500");
    const ahead = found.decisions.filter((/** @type {any} */ one) => !one.activationId);
    const rows = ahead.slice(0, 100).map((/** @type {any} */ one) => [clock(one.at * 1000), [one.namespace, one.action].filter(Boolean).join("/"), one.sandbox ?? "", (one.devices || []).join(", "), one.reason]);
    if (!view.signal.aborted) put(held, rows.length ? table("Sandboxes started before a call came, the newest first", ["time", "function", ">sandbox", "device", "why"], rows) : el("p", { class: "soft" }, "No sandbox was started ahead."));
  };
  await draw();
  repeat(view, draw, 3000);
}

/** @param {any[] | undefined} rows */
function forecastTable(rows) {
  if (rows === undefined) return [el("p", { class: "soft" }, "This server makes no forecasts. aliquot up --provisioning forecast does.")];
  if (!rows.length) return [el("p", { class: "soft" }, "No calls are expected now.")];
  const number = (/** @type {number} */ value) => Number(value.toPrecision(2));
  return [table("Expected calls, the likeliest first", ["namespace", "function", ">chance", ">within", ">at once", ">5 %", ">95 %", ">lately", "model"],
    rows.slice(0, 200).map((row) => [row.tenant, row.function, shareOf(row.chance), duration(row.window_s), number(row.middle), number(row.low), number(row.high), number(row.measured), row.model]))];
}
