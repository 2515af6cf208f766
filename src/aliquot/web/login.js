import * as api from "./api.js";
import { announce, el, put } from "./ui.js";

/**
 * @param {HTMLElement} place
 * @param {() => void} done
 */
export function login(place, done) {
  document.title = "Log in – Aliquot console";
  const field = /** @type {HTMLInputElement} */ (el("input", { type: "password", name: "key", autocomplete: "off", required: true, spellcheck: "false" }));
  const wrong = el("p", { class: "bad", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    put(wrong);
    try {
      await api.logIn({ key: field.value });
      field.value = "";
      announce("");
      done();
    } catch (error) {
      put(wrong, /** @type {Error} */ (error).message);
      field.select();
    }
  };
  put(place,
    el("h1", {}, "Log in"),
    el("form", { onsubmit: submit },
      el("label", {}, "The key of a namespace, or the operator's token", field),
      el("div", {}, el("button", { class: "main" }, "Log in")),
      wrong),
    el("p", { class: "soft" }, "On the machine of the server, ", el("code", {}, "aliquot console"), " opens this page without a key. ",
      el("code", {}, "aliquot token"), " prints the operator's token."));
  field.focus();
}
