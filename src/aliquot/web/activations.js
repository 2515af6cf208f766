import * as api from "./api.js";
import { repeat } from "./overview.js";
import { clock, duration, el, put, table } from "./ui.js";

const PAGE = 100;
const MAX_SHOWN = 1000;

/** @param {any} record */
function notes(record) {
  return Object.fromEntries((record.annotations || []).map((/** @type {any} */ note) => [note.key, note.value]));
}

/** @param {import("./overview.js").View} view */
export async function activations(view) {
  const { query } = view;
  /** @type {any[]} */
  let records = [];
  const list = el("div");
  const name = query.get("name") || "";
  const failed = query.get("failed") === "1";

  const go = (/** @type {Record<string, string>} */ change) => {
    const next = new URLSearchParams({ ...Object.fromEntries(query), ...change });
    for (const [key, value] of [...next]) if (!value) next.delete(key);
    location.hash = `#/activations${next.size ? `?${next}` : ""}`;
  };
  const search = /** @type {HTMLInputElement} */ (el("input", { type: "search", value: name, placeholder: "all functions" }));
  const only = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", checked: failed, onchange: () => go({ failed: only.checked ? "1" : "" }) }));
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); go({ name: search.value.trim() }); };

  const read = async (/** @type {Record<string, string | number>} */ more) => {
    const asked = new URLSearchParams({ limit: String(PAGE), ...Object.fromEntries(Object.entries(more).map(([key, value]) => [key, String(value)])) });
    if (name) asked.set("name", name);
    return api.ask("GET", `/api/v1/namespaces/_/activations?${asked}`);
  };
  const draw = () => {
    const shown = records.filter((record) => !failed || record.statusCode !== 0);
    put(list, shown.length ? table(`The newest ${records.length} calls${failed ? ", failed ones only" : ""}`,
      ["time", "function", "result", "start", ">wait", ">run", "id"], shown.map(row)) : el("p", { class: "soft" }, "No calls yet."),
    records.length >= PAGE && records.length < MAX_SHOWN && el("button", { type: "button", onclick: more }, "Older calls"));
  };
  const more = async () => {
    const last = records[records.length - 1];
    const older = await read({ upto: last.start, skip: records.filter((record) => record.start === last.start).length });
    records = [...records, ...older].slice(0, MAX_SHOWN);
    draw();
  };
  const renew = async () => {
    const focused = document.activeElement && list.contains(document.activeElement);
    const newest = await read({});
    if (view.signal.aborted || focused) return;
    const known = new Set(newest.map((/** @type {any} */ record) => record.activationId));
    const rest = records.filter((record) => !known.has(record.activationId));
    records = [...newest, ...rest].slice(0, Math.max(PAGE, records.length));
    draw();
  };
  put(view.place, el("h1", {}, "Activations"),
    el("form", { class: "filters", onsubmit: submit, role: "search" },
      el("label", {}, "Function", search), el("label", { class: "check" }, only, "failed only"), el("button", {}, "Search")),
    list);
  await renew();
  repeat(view, renew, 2000);
}

/** @param {any} record */
function row(record) {
  const note = notes(record);
  const status = record.statusCode === 0 ? "success" : el("span", { class: "bad" }, ["", "application error", "developer error", "platform error"][record.statusCode] || "failed");
  const took = record.end ? (record.end - record.start) / 1000 : undefined;
  return [clock(record.start), record.name, status, note.start || (note.initTime ? "cold" : "warm"), duration((note.waitTime || 0) / 1000), duration(took),
    el("a", { href: `#/activation/${record.activationId}`, "data-row": "" }, `…${record.activationId.slice(-10)}`)];
}
