/** The console: finds the session, and shows the page that the address names. Pages are loaded when they are opened. */

import * as api from "./api.js";
import { announce, el, put } from "./ui.js";

/** @typedef {{place: HTMLElement, argument: string, query: URLSearchParams, signal: AbortSignal, failed: (error: Error) => void}} View */
/** @typedef {(view: View) => Promise<void>} ShowPage */
/** @typedef {{title: string, load: () => Promise<ShowPage>, of?: string, operator?: boolean, hidden?: boolean}} Page */

/** @type {Record<string, Page>} */
const PAGES = {
  overview: { title: "Overview", load: async () => (await import("./overview.js")).overview },
  activations: { title: "Activations", load: async () => (await import("./activations.js")).activations },
  activation: { title: "A call", of: "activations", load: async () => (await import("./activation.js")).activation },
  functions: { title: "Functions", load: async () => (await import("./functions.js")).functions },
  function: { title: "A function", of: "functions", load: async () => (await import("./figures.js")).figures },
  flows: { title: "Flows", load: async () => (await import("./flows.js")).flows },
  decisions: { title: "Decisions", load: async () => (await import("./decisions.js")).decisions },
  workflows: { title: "Workflows", load: async () => (await import("./workflows.js")).workflows },
  execution: { title: "An execution", of: "workflows", load: async () => (await import("./workflows.js")).execution },
  data: { title: "Datasets and models", load: async () => (await import("./data.js")).data },
  forecasts: { title: "Forecasts and holds", load: async () => (await import("./forecasts.js")).forecasts },
  whatif: { title: "What if", operator: true, load: async () => (await import("./whatif.js")).whatif },
  nodes: { title: "Nodes", operator: true, load: async () => (await import("./settings.js")).nodes },
  settings: { title: "Settings", operator: true, load: async () => (await import("./settings.js")).settings },
  start: { title: "First steps", load: async () => (await import("./start.js")).start },
};
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const header = /** @type {HTMLElement} */ (document.getElementById("header"));

/** A page of somebody else may have a code of its own session, and would put the user into that. */
const LINKED = "Another page led here, so its code is not used. Copy the address into the address bar, or log in with a key.";

/** Ends the page that is shown: its timers and requests. */
let leave = () => {};

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const isPage = Object.hasOwn(PAGES, name);
  return { name: isPage ? name : "overview", argument: decoded(rest.join("/")), query: new URLSearchParams(query || "") };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function drawHeader() {
  const { session } = api;
  const { name } = address();
  const current = PAGES[name].of || name;
  const pages = Object.entries(PAGES).filter(([, page]) => !page.of && (!page.operator || (session && session.operator)));
  const links = pages.map(([each, page]) => el("a", { href: `#/${each}`, "aria-current": each === current ? "page" : undefined }, page.title));
  const choosing = header.contains(document.activeElement) && document.activeElement?.tagName === "SELECT";
  put(header, el("strong", {}, "Aliquot"), session && el("nav", { "aria-label": "Pages" }, links), session && who(session));
  if (choosing) header.querySelector("select")?.focus(); // the next key goes on choosing
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
  const { name, argument, query } = address();
  const namespace = query.get("namespace");
  if (name === "activation" && namespace && api.session && api.session.operator) api.choose(namespace);
  drawHeader();
  if (!api.session) {
    const { login } = await import("./login.js");
    login(main, show);
    return;
  }
  document.title = `${PAGES[name].title} – Aliquot console`;
  const failed = (/** @type {Error} */ error) => {
    if (stop.signal.aborted) return;
    if (!api.session) show();
    else announce(error.message);
  };
  try {
    const view = await PAGES[name].load();
    if (!stop.signal.aborted) await view({ place: main, argument, query, signal: stop.signal, failed });
  } catch (error) {
    failed(/** @type {Error} */ (error));
  }
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
  let trouble = "";
  const code = /^#code=(.+)$/.exec(location.hash);
  if (code) history.replaceState(null, "", location.pathname);
  const linked = document.documentElement.hasAttribute("data-linked");
  try {
    if (code && linked) throw new Error(LINKED);
    if (code) await api.logIn({ code: code[1] });
    else await api.findSession();
  } catch (error) {
    trouble = /** @type {Error} */ (error).message;
    if (linked) await api.findSession().catch(() => {});
  }
  window.addEventListener("hashchange", () => { show(); main.focus(); });
  window.addEventListener("keydown", onKey);
  await show();
  if (trouble) announce(trouble);
}

begin();
