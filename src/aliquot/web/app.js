/** The console: finds the session, and shows the page that the address names. */

import * as api from "./api.js";
import { activation } from "./activation.js";
import { activations } from "./activations.js";
import { functions } from "./functions.js";
import { login } from "./login.js";
import { overview } from "./overview.js";
import { announce, el, put } from "./ui.js";
import { whatif } from "./whatif.js";
import { execution, workflows } from "./workflows.js";

const PAGES = { overview: "Overview", activations: "Activations", functions: "Functions", workflows: "Workflows", whatif: "What if" };
const OPERATORS = ["whatif"];
const VIEWS = { overview, activations, activation, execution, functions, workflows, whatif };
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const header = /** @type {HTMLElement} */ (document.getElementById("header"));

/** Ends the page that is shown: its timers and requests. */
let leave = () => {};

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: name || "overview", argument: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query || "") };
}

function drawHeader() {
  const { session } = api;
  const { name: shown } = address();
  const current = { activation: "activations", execution: "workflows" }[shown] || shown;
  const pages = Object.entries(PAGES).filter(([name]) => (session && session.operator) || !OPERATORS.includes(name));
  const links = pages.map(([name, title]) =>
    el("a", { href: `#/${name}`, "aria-current": name === current ? "page" : undefined }, title));
  put(header, el("strong", {}, "Aliquot"), session && el("nav", { "aria-label": "Pages" }, links), session && who(session));
}

/** @param {api.Session} session */
function who(session) {
  const select = el("select", { "aria-label": "Namespace", onchange: (/** @type {any} */ event) => { api.choose(event.target.value); show(); } },
    session.namespaces.map((name) => el("option", { value: name, selected: name === api.chosen }, name)));
  const name = session.operator ? [el("span", {}, "operator, namespace"), select] : el("span", {}, session.namespace);
  return el("div", { class: "who" }, name, el("button", { type: "button", onclick: end }, "Log out"));
}

async function end() {
  await api.logOut().catch(() => {});
  show();
}

async function show() {
  leave();
  const stop = new AbortController();
  leave = () => stop.abort();
  announce("");
  drawHeader();
  if (!api.session) {
    login(main, show);
    return;
  }
  const { name, argument, query } = address();
  const view = VIEWS[/** @type {keyof typeof VIEWS} */ (name)] || overview;
  document.title = `${PAGES[/** @type {keyof typeof PAGES} */ (name)] || "Details"} – Aliquot console`;
  const failed = (/** @type {Error} */ error) => {
    if (stop.signal.aborted) return;
    if (!api.session) show();
    else announce(error.message);
  };
  await view({ place: main, argument, query, signal: stop.signal, failed }).catch(failed);
}

function onKey(/** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Escape") target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
  const links = [.../** @type {NodeListOf<HTMLElement>} */ (main.querySelectorAll("a[data-row]"))];
  const at = links.indexOf(target);
  if (event.key === "/") {
    const search = /** @type {HTMLElement | null} */ (main.querySelector("input[type=search]"));
    if (search) { event.preventDefault(); search.focus(); }
  } else if (event.key === "j" && links.length) links[Math.min(at + 1, links.length - 1)].focus();
  else if (event.key === "k" && links.length) links[Math.max(at - 1, 0)].focus();
}

async function begin() {
  const code = /^#code=(.+)$/.exec(location.hash);
  if (code) history.replaceState(null, "", location.pathname);
  try {
    if (code) await api.logIn({ code: code[1] });
    else await api.findSession();
  } catch (error) {
    announce(/** @type {Error} */ (error).message);
  }
  window.addEventListener("hashchange", () => { show(); main.focus(); });
  window.addEventListener("keydown", onKey);
  await show();
}

begin();
