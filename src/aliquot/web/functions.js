import * as api from "./api.js";
import { el, put, table } from "./ui.js";

/** @param {import("./app.js").View} view */
export async function functions(view) {
  const actions = await api.ask("GET", "/api/v1/namespaces/_/actions?limit=200");
  if (view.signal.aborted) return;
  const form = el("div");
  const rows = actions.map((/** @type {any} */ action) => {
    const packaged = action.namespace.split("/").slice(1).concat(action.name).join("/");
    const kind = (action.annotations || []).find((/** @type {any} */ note) => note.key === "exec");
    const link = `#/activations?name=${encodeURIComponent(packaged)}`;
    return [el("a", { href: `#/function/${encodeURIComponent(packaged)}` }, packaged), kind ? kind.value : "", action.version, el("a", { href: link, "data-row": "" }, "calls"),
      el("button", { type: "button", onclick: () => caller(form, packaged) }, "Call")];
  });
  put(view.place, el("h1", {}, "Functions"),
    rows.length ? table("Functions of the namespace", ["function", "kind", "version", "calls", "try it"], rows) : el("p", { class: "soft" }, "No functions yet. aliquot deploy FILE deploys one."),
    form);
}

/**
 * @param {HTMLElement} place
 * @param {string} name
 */
function caller(place, name) {
  const text = /** @type {HTMLTextAreaElement} */ (el("textarea", { spellcheck: "false" }, "{}"));
  const result = el("div", { role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    let given;
    try {
      given = JSON.parse(text.value || "{}");
    } catch {
      put(result, el("p", { class: "bad" }, 'This is not JSON. It takes an object such as {"name": "you"}.'));
      return;
    }
    put(result, el("p", { class: "soft" }, "It runs…"));
    try {
      const path = name.split("/").map(encodeURIComponent).join("/");
      const done = await api.ask("POST", `/api/v1/namespaces/_/actions/${path}?blocking=true`, given);
      put(result, el("p", {}, el("a", { href: `#/activation/${done.activationId}` }, "Its call: where it was, and why")),
        el("pre", { tabindex: "0" }, JSON.stringify(done.response ? done.response.result : done, null, 2)));
    } catch (error) {
      put(result, el("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
  };
  put(place, el("h2", {}, `Call ${name}`),
    el("form", { onsubmit: submit }, el("label", {}, "Arguments, as JSON", text), el("div", {}, el("button", { class: "main" }, "Call")), result));
  text.focus();
}
