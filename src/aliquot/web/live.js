/** The state of the platform, renewed by one stream of events for all parts of the page. */

import * as api from "./api.js";

const SLOW_MS = 3000;

/** @type {Record<string, any>} */
let state = {};
/** @type {EventSource | null} */
let source = null;
/** @type {Set<(state: Record<string, any>) => void>} */
const listeners = new Set();
/** @type {(error: Error) => void} */
let report = () => {};

/**
 * Calls back with the state now and after each change, until the page is left.
 * @param {import("./app.js").View} view
 * @param {(state: Record<string, any>) => void} listener
 */
export async function follow(view, listener) {
  listeners.add(listener);
  report = view.failed;
  view.signal.addEventListener("abort", () => {
    listeners.delete(listener);
    if (!listeners.size) close();
  });
  if (!source) state = await api.ask("GET", "/api/v1/observe/overview");
  if (view.signal.aborted) return;
  listener(state);
  open();
}

function open() {
  if (source || document.hidden || !listeners.size) return;
  source = new EventSource(api.place("/api/v1/observe/stream"));
  source.addEventListener("tick", (event) => {
    const changed = JSON.parse(event.data);
    if (!Object.keys(changed).length) return;
    state = { ...state, ...changed };
    for (const listener of listeners) listener(state);
  });
  source.addEventListener("open", () => report(new Error("")));
  source.addEventListener("error", () => {
    if (!source) return;
    const ended = source.readyState === EventSource.CLOSED;
    report(new Error("The server does not answer. The page tries again."));
    if (!ended) return;
    close();
    setTimeout(again, SLOW_MS);
  });
}

/** Finds out why the stream has ended: the session, or too many pages. */
async function again() {
  if (!listeners.size) return;
  await api.ask("GET", "/api/v1/observe/overview").then(open, (error) => {
    report(error);
    if (api.session) setTimeout(again, SLOW_MS);
  });
}

function close() {
  if (source) source.close();
  source = null;
}

// A browser opens six connections to a host, so a page that nobody sees keeps none.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
