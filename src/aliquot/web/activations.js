import * as api from "./api.js";
import { callLink, choice, clock, duration, el, field, goTo, put, repeat } from "./ui.js";

const PART = 200;
const LARGER_PART = 500;
const ROW_PX = 33;
const MARGIN_ROWS = 15;
const STATUSES = ["", "success", "failed", "open", "application error", "developer error", "platform error"];
const STARTS = ["", "warm", "cold", "swap_in", "composition"];
const CAUSES = ["", "full", "own queue", "own limit", "turn", "warm soon", "no device"];
const HEADS = ["time", "function", "status", "start", ">wait", ">run", ">in all", "cause", "call"];

function isOperator() {
  return Boolean(api.session && api.session.operator);
}

/** @param {import("./app.js").View} view */
export async function activations(view) {
  const wanted = (/** @type {string} */ name) => view.query.get(name) || "";
  const fields = {
    ...(isOperator() ? { namespace: field("Namespace", wanted("namespace")) } : {}),
    name: field("Function", wanted("name"), { type: "search", placeholder: "all" }),
    status: choice("Status", wanted("status"), STATUSES, "all"),
    start: choice("Start", wanted("start"), STARTS, "all"),
    cause: choice("Cause of the wait", wanted("cause"), CAUSES, "any"),
    wait: field("Waited at least, s", wanted("wait"), { type: "number", min: "0", step: "any" }),
    duration: field("Took at least, s", wanted("duration"), { type: "number", min: "0", step: "any" }),
    device: field("Device", wanted("device")),
    session: field("Session", wanted("session")),
    error: field("Error", wanted("error")),
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    goTo("activations", Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, one.input.value.trim()])));
  };
  const note = el("p", { class: "soft", role: "status" });
  const list = new CallList(() => more());
  put(view.place, el("h1", {}, "Activations"),
    el("form", { class: "filters", onsubmit: submit, role: "search" }, Object.values(fields).map((one) => one.shown), el("button", { class: "main" }, "Search")),
    note, list.place);

  const ask = (/** @type {string} */ cursor) => {
    const query = new URLSearchParams({ limit: String(cursor ? LARGER_PART : PART), ...Object.fromEntries(view.query) });
    if (cursor) query.set("cursor", cursor);
    return api.ask("GET", `/api/v1/observe/activations?${query}`);
  };
  let cursor = "";
  let asking = false;
  let explains = false;
  const more = async () => {
    if (asking || !cursor) return;
    asking = true;
    try {
      const found = await ask(cursor);
      if (view.signal.aborted) return;
      cursor = found.cursor;
      list.append(found.calls);
    } catch (error) {
      view.failed(/** @type {Error} */ (error));
    } finally {
      asking = false;
    }
  };
  const renew = async () => {
    if (asking) return;
    const found = await ask("");
    if (view.signal.aborted) return;
    if (!list.size || explains) cursor = found.cursor;
    explains = Boolean(wanted("cause")) && list.size <= PART;
    if (explains) list.clear();
    list.renew(found.calls);
    put(note, summary(found, wanted("cause")));
  };
  await renew();
  repeat(view, renew, 2000);
}

/**
 * @param {any} found
 * @param {string} cause
 */
function summary(found, cause) {
  const parts = [`${found.looked} calls were compared`];
  if (!found.complete) parts.push("the journal is still being read");
  if (cause) parts.push(found.explainedSince ? `causes are known since ${clock(found.explainedSince * 1000)}` : "causes are being found");
  return `${parts.join("; ")}.`;
}

/** A list of which only the part that is seen has elements. */
class CallList {
  /** @param {() => void} onEnd called when its end is near */
  constructor(onEnd) {
    /** @type {any[]} */
    this.calls = [];
    this.onEnd = onEnd;
    this.before = el("td", { colspan: HEADS.length });
    this.after = el("td", { colspan: HEADS.length });
    this.body = el("tbody", {});
    this.caption = el("caption", {}, "The newest calls");
    this.place = el("div", { class: "wide calls", tabindex: "0", role: "region", "aria-label": "Calls" },
      el("table", {}, this.caption,
        el("thead", {}, el("tr", {}, HEADS.map((head) => el("th", { scope: "col", class: head.startsWith(">") ? "number" : undefined }, head.replace(/^>/, ""))))),
        this.body));
    this.shown = "";
    this.place.addEventListener("scroll", () => this.draw(), { passive: true });
  }

  get size() {
    return this.calls.length;
  }

  clear() {
    this.calls = [];
  }

  /** @param {any[]} calls */
  append(calls) {
    this.calls.push(...calls);
    this.draw(true);
  }

  /**
   * Takes the newest calls, and keeps the older ones.
   * @param {any[]} calls
   */
  renew(calls) {
    const newest = new Set(calls.map((call) => call.activationId));
    this.calls = [...calls, ...this.calls.filter((call) => !newest.has(call.activationId))];
    this.draw(true);
  }

  /** @param {string} href of the call's link, which has been made anew */
  focus(href) {
    const links = [.../** @type {NodeListOf<HTMLElement>} */ (this.body.querySelectorAll("a[data-row]"))];
    links.find((link) => link.getAttribute("href") === href)?.focus({ preventScroll: true });
  }

  draw(changed = false) {
    const seen = Math.ceil((this.place.clientHeight || 600) / ROW_PX);
    const first = Math.max(0, Math.floor(this.place.scrollTop / ROW_PX) - MARGIN_ROWS);
    const last = Math.min(this.calls.length, first + seen + 2 * MARGIN_ROWS);
    const shown = `${first} ${last}`;
    if (!changed && shown === this.shown) return;
    const focused = this.body.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
    if (changed && focused) return;
    this.shown = shown;
    const top = this.place.scrollTop; // a browser moves it when rows above are replaced
    this.before.style.height = `${first * ROW_PX}px`;
    this.after.style.height = `${(this.calls.length - last) * ROW_PX}px`;
    put(this.caption, this.calls.length ? `The newest ${this.calls.length} calls` : "No calls");
    put(this.body, el("tr", { class: "gap", "aria-hidden": "true" }, this.before), this.calls.slice(first, last).map(row),
      el("tr", { class: "gap", "aria-hidden": "true" }, this.after));
    this.place.scrollTop = top;
    if (focused) this.focus(focused);
    if (last > this.calls.length - 2 * MARGIN_ROWS) this.onEnd();
  }
}

/** @param {any} call */
function row(call) {
  const bad = !["success", "open"].includes(call.status);
  const cells = [clock(call.arrived * 1000), isOperator() ? `${call.namespace}/${call.action}` : call.action, el("span", { class: bad ? "bad" : undefined, title: call.error }, call.status),
    (call.start || "").replace("_", " "), duration(call.wait), duration(call.run), duration(call.duration), call.cause || "", callLink(call.activationId, isOperator() ? call.namespace : "")];
  return el("tr", { class: "call" }, cells.map((cell, at) => el("td", { class: HEADS[at].startsWith(">") ? "number" : undefined }, cell)));
}
