/** Elements are made by functions. Text always becomes a text node, so that a name can never become markup. */

const SVG = "http://www.w3.org/2000/svg";
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * @param {unknown} value
 * @returns {string} the text with control and direction characters shown as escapes
 */
export function shown(value) {
  return String(value ?? "").replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * @param {Element} made
 * @param {Record<string, any>} attributes
 * @param {any[]} children
 */
function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, attributes, children);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  fill(made, attributes, children);
  return made;
}

/**
 * @param {Element} place
 * @param {...any} children
 */
export function put(place, ...children) {
  place.replaceChildren();
  fill(place, {}, children);
}

/**
 * @param {string} caption
 * @param {string[]} heads names that begin with `>` are numbers
 * @param {any[][]} rows
 */
export function table(caption, heads, rows) {
  const kind = heads.map((head) => (head.startsWith(">") ? "number" : undefined));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: kind[at] }, head.replace(/^>/, ""))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) => el("td", { class: kind[at] }, cell))))),
    ));
}

/**
 * @param {string} label
 * @param {number} part 0 to 1
 */
export function meter(label, part) {
  const width = Math.max(0, Math.min(1, part || 0)) * 100;
  return svg("svg", { class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${Math.round(width)} %` },
    svg("rect", { x: 0, y: 0, width, height: 10 }));
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  return seconds < 120 ? `${Number(seconds.toPrecision(3))} s` : `${Math.round(seconds / 60)} min`;
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (amount < 1024) return `${Math.round(amount)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} GiB`;
}

/** @param {number} epochMs */
export function clock(epochMs) {
  return new Date(epochMs).toLocaleTimeString(undefined, { hour12: false });
}

/** @param {string} text */
export function announce(text) {
  const live = document.getElementById("live");
  if (live) live.textContent = shown(text);
}

/** @param {number | null | undefined} part */
export function shareOf(part) {
  return part === null || part === undefined ? "" : `${Math.round(100 * part)} %`;
}

const EVERY_MS = 1000;

/**
 * Repeats a task until the page is left, and rests while the tab is hidden.
 * @param {import("./app.js").View} view
 * @param {() => Promise<void>} task
 */
export function repeat(view, task, everyMs = EVERY_MS) {
  const turn = async () => {
    if (view.signal.aborted) return;
    if (!document.hidden) await task().then(() => announce(""), view.failed);
    setTimeout(turn, everyMs);
  };
  setTimeout(turn, everyMs);
}

/**
 * A link to a call. The operator's names its namespace.
 * @param {string} id
 * @param {string} [namespace]
 */
export function callLink(id, namespace) {
  const query = namespace ? `?namespace=${encodeURIComponent(namespace)}` : "";
  return el("a", { href: `#/activation/${id}${query}`, "data-row": "" }, `…${id.slice(-10)}`);
}

/**
 * A field of a form of filters.
 * @param {string} label
 * @param {string} value
 * @param {Record<string, any>} [more]
 */
export function field(label, value, more = {}) {
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "text", value, ...more }));
  return { input, shown: el("label", {}, label, input) };
}

/**
 * @param {string} label
 * @param {string} value
 * @param {string[]} choices the first one may be empty
 * @param {string} all the text of the empty one
 */
export function choice(label, value, choices, all) {
  const input = /** @type {HTMLSelectElement} */ (el("select", {}, choices.map((one) => el("option", { value: one, selected: one === value }, one.replace("_", " ") || all))));
  return { input, shown: el("label", {}, label, input) };
}

/**
 * Goes to a page with these filters. Empty ones are left out.
 * @param {string} page
 * @param {Record<string, string>} filters
 */
export function goTo(page, filters) {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
  location.hash = `#/${page}${query.size ? `?${query}` : ""}`;
}
