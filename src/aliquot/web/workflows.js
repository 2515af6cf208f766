import * as api from "./api.js";
import { clock, duration, el, put, repeat, table } from "./ui.js";

const EXECUTIONS = "/api/v1/namespaces/_/executions";

/** @param {import("./app.js").View} view */
export async function workflows(view) {
  const list = el("div");
  put(view.place, el("h1", {}, "Workflows"), list);
  const draw = async () => {
    const executions = await api.ask("GET", `${EXECUTIONS}?limit=100`);
    if (view.signal.aborted || list.contains(document.activeElement)) return;
    put(list, executions.length ? table("The newest executions", ["start", "workflow", "status", ">took", "id"], executions.map(row))
      : el("p", { class: "soft" }, "No executions yet. aliquot workflow run NAME starts one."));
  };
  await draw();
  repeat(view, draw, 2000);
}

/** @param {any} one */
function row(one) {
  const took = one.end ? duration((one.end - one.start) / 1000) : "";
  return [clock(one.start), one.workflow, status(one.status), took,
    el("a", { href: `#/execution/${one.executionId}`, "data-row": "" }, `…${one.executionId.slice(-10)}`)];
}

/** @param {string} text */
function status(text) {
  return el("span", { class: /FAILED|TIMED_OUT|ABORTED/.test(text) ? "bad" : undefined }, text.toLowerCase().replaceAll("_", " "));
}

/** @param {import("./app.js").View} view */
export async function execution(view) {
  const id = view.argument.replace(/[^0-9a-f]/g, "");
  const path = `${EXECUTIONS}/${id}`;
  let renewals = 0;
  const draw = async () => {
    const found = await api.ask("GET", path);
    const history = await api.ask("GET", `${path}/history?limit=200&reverse=true`).catch(() => ({ events: [] }));
    if (view.signal.aborted) return true;
    const picture = el("img", { class: "graph", src: `${api.place(`${path}/graph`)}?${renewals++}`, alt: `Graph of ${found.workflow}, with the states that it has entered` });
    put(view.place, el("h1", {}, found.workflow),
      el("p", {}, el("code", {}, id), ` · ${clock(found.start)} · `, status(found.status)),
      el("div", { class: "panel wide", tabindex: "0", role: "region", "aria-label": "Graph" }, picture),
      found.error && el("p", { class: "bad" }, `${found.error}: ${found.cause || ""}`),
      found.output !== undefined && found.output !== null && [el("h2", {}, "Output"), el("pre", { tabindex: "0" }, JSON.stringify(found.output, null, 2))],
      history.events.length > 0 && table("History, newest first", [">event", "time", "what"], history.events.map(event)));
    return Boolean(found.end);
  };
  let ended = await draw();
  repeat(view, async () => { if (!ended) ended = await draw(); }, 1000);
}

/** @param {any} one */
function event(one) {
  const details = Object.entries(one).filter(([name]) => name.endsWith("EventDetails")).map(([, value]) => /** @type {any} */ (value).name).filter(Boolean);
  return [one.id, clock(typeof one.timestamp === "number" ? one.timestamp * (one.timestamp > 1e11 ? 1 : 1000) : Date.parse(one.timestamp)), [one.type, details.length ? ` ${details[0]}` : ""]];
}
