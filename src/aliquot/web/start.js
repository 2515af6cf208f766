import * as api from "./api.js";
import { el, put } from "./ui.js";

const CODE = 'import aliquot\n\napp = aliquot.App("tiny")\n\n\n@app.function(gpu=0.5)\ndef greet(name: str = "you"):\n    return f"Hello, {name}"\n';

/** @param {import("./app.js").View} view */
export async function start(view) {
  const result = el("div", { role: "status" });
  const call = async () => {
    put(result, el("p", { class: "soft" }, "It runs…"));
    try {
      const done = await api.ask("POST", "/api/v1/namespaces/whisk.system/actions/utils/echo?blocking=true", { message: "Hello" });
      location.hash = `#/activation/${done.activationId}`;
    } catch (error) {
      put(result, el("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
  };
  put(view.place, el("h1", {}, "First steps"),
    el("p", {}, "Write a function into tiny.py:"), el("pre", { tabindex: "0" }, CODE),
    el("p", {}, "Deploy it, and call it:"), el("pre", { tabindex: "0" }, "aliquot deploy tiny.py\naliquot invoke tiny.greet\naliquot why"),
    el("p", {}, "Or call a function that is there already, and see what the platform did with it:"),
    el("div", {}, el("button", { class: "main", type: "button", onclick: call }, "Call /whisk.system/utils/echo")), result);
}
