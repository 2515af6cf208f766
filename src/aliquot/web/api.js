/** Requests to the platform. All of them go through the console's own address. */

/** @typedef {{operator: boolean, namespace: string | null, namespaces: string[], csrf: string}} Session */

/** @type {Session | null} */
export let session = null;

/** The namespace that the operator looks at. */
export let chosen = "";

const BASE = "/console";
const TOKEN = "aliquot.console.token";

/** The token of the session. Only pages of this address can write it here, while any page of this machine can add cookies. */
function token() {
  return localStorage.getItem(TOKEN) || "";
}

export class RequestError extends Error {
  /**
   * @param {string} text
   * @param {number} status
   */
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

/** @param {string} name */
export function choose(name) {
  chosen = name;
}

/**
 * The address of a path. The operator asks for the namespace that is chosen, and observes all.
 * @param {string} path
 */
export function place(path) {
  const forOther = session && session.operator && chosen && path.startsWith("/api/") && !path.startsWith("/api/v1/observe/");
  return forOther ? `${BASE}/as/${encodeURIComponent(chosen)}${path}` : BASE + path;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 */
export async function ask(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (token()) headers["x-aliquot-csrf"] = token();
  if (body !== undefined) headers["content-type"] = "application/json";
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
  const answer = await fetch(place(path), options);
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = null;
  }
  if (answer.status === 401 && path !== "/session") session = null;
  if (!answer.ok && !(value && value.activationId)) {
    const error = value && value.error;
    throw new RequestError(typeof error === "string" ? error : `the server answered ${answer.status}`, answer.status);
  }
  return value;
}

/** @returns {Promise<Session | null>} */
export async function findSession() {
  if (!token()) return null;
  try {
    session = await ask("GET", "/session");
  } catch (error) {
    if (!(error instanceof RequestError) || error.status !== 401) throw error;
    session = null;
  }
  return remember();
}

/**
 * @param {{key: string} | {code: string}} given
 * @returns {Promise<Session | null>}
 */
export async function logIn(given) {
  const made = await ask("POST", "/session", given);
  localStorage.setItem(TOKEN, made.csrf);
  session = made;
  return remember();
}

export async function logOut() {
  await ask("DELETE", "/session");
  localStorage.removeItem(TOKEN);
  session = null;
}

function remember() {
  if (session && session.operator && !session.namespaces.includes(chosen)) chosen = session.namespaces[0] || "";
  return session;
}
