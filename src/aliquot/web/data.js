import * as api from "./api.js";
import { clock, el, put, repeat, size, table } from "./ui.js";

/** @param {import("./app.js").View} view */
export async function data(view) {
  const operator = Boolean(api.session && api.session.operator);
  const content = el("div");
  put(view.place, el("h1", {}, "Datasets and models"), content);
  const draw = async () => {
    const base = operator ? "/operator/v1/datasets" : "/api/v1/datasets";
    const names = await api.ask("GET", base);
    const sets = await Promise.all(names.slice(0, 100).map((/** @type {any} */ one) => api.ask("GET", `${base}/${encodeURIComponent(one.name)}`).catch(() => one)));
    const models = operator ? await api.ask("GET", "/operator/v1/models").catch((error) => ({ problem: error.message })) : null;
    const fetches = await api.ask("GET", "/api/v1/observe/decisions?kind=Fetch&limit=50");
    if (view.signal.aborted || content.contains(document.activeElement)) return;
    put(content, sets.length ? table("Datasets, and their part on the node", ["name", "origin", ">files", ">bytes", ">files on the node", ">bytes on the node"], sets.map(dataset))
      : el("p", { class: "soft" }, "No datasets. aliquot dataset add NAME URL adds one."),
    models && modelPart(models), fetchTable(fetches));
  };
  await draw();
  repeat(view, draw, 5000);
}

/** @param {any} one */
function dataset(one) {
  return [one.name, one.origin, one.files ?? "", size(one.bytes), one.cached_files ?? "", size(one.cached_bytes)];
}

/** @param {any} models */
function modelPart(models) {
  if (models.problem) return [el("h2", {}, "Models"), el("p", { class: "soft" }, models.problem)];
  const versions = (models.versions || []).map((/** @type {any} */ one) => Object.entries(one).filter(([, value]) => typeof value !== "object"));
  const heads = versions.length ? versions[0].map((/** @type {any[]} */ [name]) => name.replaceAll("_", " ")) : [];
  const state = Object.entries(models).filter(([, value]) => value !== null && typeof value !== "object");
  return [
    el("h2", {}, "Models that predict the next file"),
    state.length > 0 && el("p", {}, state.map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`).join(", ")),
    versions.length ? table("Versions", heads, versions.map((/** @type {any[]} */ row) => row.map(([, value]) => (typeof value === "number" ? Number(value.toPrecision(4)) : value)))) : el("p", { class: "soft" }, "None is trained yet."),
  ];
}

/** @param {any} found */
function fetchTable(found) {
  const rows = found.decisions.map((/** @type {any} */ one) => [clock(one.at * 1000), one.namespace, one.reason]);
  return rows.length > 0 && table("Files fetched ahead, the newest first", ["time", "namespace", "file, and why"], rows);
}
