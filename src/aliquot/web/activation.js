import * as api from "./api.js";
import { clock, duration, el, put, shown, svg, table } from "./ui.js";

const MAX_LINES = 2000;
const MAX_LINE = 20_000;
const PHASES = {
  wait: "waited", start: "sandbox started", load: "memory loaded", behind: "waited in a sandbox", run: "ran", restart: "server was down",
};

/** @param {import("./app.js").View} view */
export async function activation(view) {
  const id = view.argument.replace(/[^0-9a-f]/g, "");
  const operator = Boolean(api.session && api.session.operator);
  const path = `/api/v1/namespaces/_/activations/${id}`;
  /** @type {any} */
  let record = await api.ask("GET", path).catch((error) => { if (error.status !== 404) throw error; });
  if (view.signal.aborted) return;
  if (!record) record = await running(view, id, path);
  if (!record || view.signal.aborted) return;
  const why = el("div", {}, el("p", { class: "soft" }, "The journal is being replayed…"));
  const response = record.response || {};
  put(view.place,
    el("h1", {}, record.name),
    el("p", {}, el("code", {}, record.activationId), ` · ${clock(record.start)} · `,
      el("span", { class: response.success ? undefined : "bad" }, response.status || "")),
    why,
    el("h2", {}, "Result"), el("pre", { tabindex: "0" }, JSON.stringify(response.result, null, 2)),
    el("h2", {}, "Output"), el("pre", { tabindex: "0" }, (record.logs || []).join("\n") || "nothing was printed"));
  try {
    const told = await api.ask("GET", operator ? `/operator/v1/activations/${id}/timeline?near=${record.start}` : `/api/v1/observe/activations/${id}/timeline`);
    if (!view.signal.aborted) put(why, ...timeline(told));
  } catch (error) {
    if (!view.signal.aborted) put(why, el("p", { class: "soft" }, /** @type {Error} */ (error).message));
  }
}

/**
 * Shows what a running call prints, with a button to cancel it, and returns its record at its end.
 * @param {import("./app.js").View} view
 * @param {string} id
 * @param {string} path
 * @returns {Promise<any>}
 */
function running(view, id, path) {
  const output = el("pre", { tabindex: "0", "aria-live": "polite" });
  const cancel = () => api.ask("DELETE", path).catch(view.failed);
  put(view.place, el("h1", {}, "A call that has not ended"), el("p", {}, el("code", {}, id), " ", el("button", { type: "button", onclick: cancel }, "Cancel")),
    el("h2", {}, "Output so far"), output);
  return new Promise((resolve, reject) => {
    const source = new EventSource(api.place(path));
    const stop = (/** @type {() => void} */ then) => { source.close(); then(); };
    view.signal.addEventListener("abort", () => stop(() => resolve(undefined)));
    source.addEventListener("log", (event) => {
      output.append(shown(`${JSON.parse(event.data)}\n`.slice(0, MAX_LINE)));
      while (output.childNodes.length > MAX_LINES) output.firstChild?.remove();
    });
    source.addEventListener("result", (event) => stop(() => resolve(JSON.parse(event.data))));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) stop(() => reject(new Error("There is no such call, or it is being recorded.")));
    });
  });
}

/** @param {any} told */
function timeline(told) {
  const whole = told.ended - told.arrived;
  const rows = told.pieces.map((/** @type {any} */ piece) => [
    PHASES[/** @type {keyof typeof PHASES} */ (piece.phase)] || piece.phase,
    duration(piece.end - piece.start),
    bar(piece, told.arrived, whole),
    [piece.cause ? `${piece.cause}: ${piece.detail}` : "", holders(piece.holders || [])],
  ]);
  return [
    el("p", {}, `${duration(whole)} in all, ${told.end}${told.reason ? `: ${told.reason}` : ""}`),
    table("Where it was, and why", ["phase", ">time", "when", "why"], rows),
    told.dispatches.map((/** @type {any} */ one) => el("p", {}, placed(one))),
  ];
}

/**
 * @param {any} piece
 * @param {number} arrived
 * @param {number} whole
 */
function bar(piece, arrived, whole) {
  const from = whole > 0 ? ((piece.start - arrived) / whole) * 1000 : 0;
  const width = whole > 0 ? Math.max(4, ((piece.end - piece.start) / whole) * 1000) : 0;
  return svg("svg", { class: "fall", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img",
    "aria-label": `from ${duration(piece.start - arrived)} on, for ${duration(piece.end - piece.start)}` },
  svg("rect", { class: "back", x: 0, y: 7, width: 1000, height: 2 }),
  svg("rect", { class: piece.phase, x: Math.min(from, 996), y: 0, width, height: 16 }));
}

/** @param {any[]} list */
function holders(list) {
  const total = list.reduce((sum, one) => sum + one.runSeconds, 0);
  if (!(total > 0)) return undefined;
  const parts = list.slice(0, 3).map((one) => `${[one.namespace, one.action].filter(Boolean).join("/")} ${Math.round((100 * one.runSeconds) / total)} %`);
  return el("div", { class: "soft" }, `taken by ${parts.join(", ")}${list.length > 3 ? " and more" : ""}`);
}

/** @param {any} one */
function placed(one) {
  const line = `placed on ${one.place.join(", ")} in sandbox ${one.sandbox}: ${one.reason}`;
  if (!one.cause) return `${line}; ${one.start}`;
  const before = one.cause.at ? `, ${duration(one.at - one.cause.at)} before` : "";
  const room = one.cause.roomFor ? `, to make room for ${one.cause.roomFor}` : "";
  return `${line}; ${one.start.replace("_", " ")}, because ${one.cause.reason}${before}${room}`;
}
