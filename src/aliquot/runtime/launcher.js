// The inside of a Node.js sandbox: initialises one function, and then runs one request at a time.
//
// It is started as `node launcher.js`, with the frames of frames.py on descriptor 3 and the function's description as
// JSON on descriptor 4. exec_launcher.py has read the init frame and unpacked a zip into the directory of the
// description. As in OpenWhisk, an exception is a developer error, and a rejected promise is an application error.
'use strict';

const fs = require('node:fs');
const Module = require('node:module');
const net = require('node:net');
const path = require('node:path');
const url = require('node:url');

const INIT = 1;
const RUN = 2;
const HEADER = 12;
const PRINTED = 1; // Node cannot find out whether a pipe is empty, so the server reads it
const SUCCESS = 0;
const APPLICATION_ERROR = 1;
const DEVELOPER_ERROR = 2;

const MISSING_CODE = 'Missing main/no code to execute.';
const TWICE = 'Cannot initialize the action more than once.';
const NOT_JSON = "The action takes and returns JSON; this kind of function cannot be called with Python's objects.";
const NO_DICTIONARY = 'The action did not return a dictionary.';
const NO_MODULE = 'Zipped actions must contain either package.json or index.js at the root.';
const MAX_REASON_LENGTH = 16384;

// Bound now, because the function may replace them.
const streams = [process.stdout, process.stderr].map((stream) => stream.write.bind(stream));
const socket = new net.Socket({ fd: 3, readable: true, writable: true });
const description = JSON.parse(fs.readFileSync(4, 'utf8'));
fs.closeSync(4);

class Refusal extends Error {}

function reply(status, value) {
  const body = Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
  const header = Buffer.alloc(HEADER);
  header.writeUInt8(status, 0);
  header.writeUInt8(PRINTED, 1);
  header.writeUInt32LE(body.length, 4);
  const answer = Buffer.concat([header, body]);
  // Wait until the streams are flushed: when the reply arrives, all output is in the pipes.
  let waiting = streams.length;
  const written = () => { if (--waiting === 0) socket.write(answer); };
  for (const write of streams) write('', written);
}

// --- init ----------------------------------------------------------------------------------------------------

async function load() {
  const { code, main, directory } = description;
  if (!main || !code.trim()) throw new Refusal(MISSING_CODE);
  const found = directory ? await loadPackage(directory, main) : loadText(code, main);
  if (typeof found !== 'function') throw `Action entrypoint '${main}' is not a function.`; // as OpenWhisk, without a stack
  return found;
}

function initFailure(error) {
  if (error instanceof Refusal) return error.message;
  console.error('Error during initialization:', error);
  const reason = error instanceof Error && error.stack ? String(error.stack) : String(error);
  return `Initialization has failed due to: ${reason.slice(0, MAX_REASON_LENGTH)}`;
}

function member(exported, main) {
  return main.split('.').reduce((value, name) => (value === undefined || value === null ? value : value[name]), exported);
}

function loadText(code, main) {
  const file = path.join(process.cwd(), 'index.js');
  const module = new Module(file, null);
  module.filename = file;
  module.paths = Module._nodeModulePaths(process.cwd());
  if (!/^[\w$]+(\.[\w$]+)*$/.test(main)) throw `'${main}' is not a function's name.`;
  new (require('node:vm').Script)(Module.wrap(code), { filename: file }); // a syntax error names the line of the code
  const pick = `\n;try { module.exports.__main = ${main}; } catch (error) { if (!(error instanceof ReferenceError)) throw error; }`;
  module._compile(code + pick, file);
  return module.exports.__main ?? member(module.exports, main);
}

// Main is a function of the package, or `file.function` with a file in any of its directories.
async function loadPackage(directory, main) {
  process.chdir(directory);
  const require = Module.createRequire(path.join(directory, 'index.js'));
  const dot = main.indexOf('.');
  const file = dot < 0 ? undefined : path.join(directory, main.slice(0, dot));
  if (file !== undefined && isModule(require, file)) return member(await loadModule(require, file), main.slice(dot + 1));
  const has = (name) => fs.existsSync(path.join(directory, name));
  if (!has('package.json') && !has('index.js')) throw NO_MODULE;
  return member(await loadModule(require, directory), main);
}

function isModule(require, file) {
  try {
    return Boolean(require.resolve(file));
  } catch {
    return false;
  }
}

async function loadModule(require, file) {
  try {
    return require(file);
  } catch (error) {
    if (error.code !== 'ERR_REQUIRE_ESM') throw error;
  }
  const module = await import(url.pathToFileURL(require.resolve(file)));
  return { ...module.default, ...module };
}

// --- runs ----------------------------------------------------------------------------------------------------

let traced = false;

function setVariables(env) {
  if (traced) for (const name of ['TRACEPARENT', 'TRACESTATE']) delete process.env[name]; // of an earlier run
  traced = 'TRACEPARENT' in env;
  Object.assign(process.env, env);
}

async function run(main, env, payload) {
  setVariables(JSON.parse(env));
  const args = JSON.parse(payload);
  for (const name of description.init_names) delete args[name]; // they are variables of the environment
  let promise;
  try {
    promise = main(args);
  } catch (error) {
    console.error(error);
    return reply(DEVELOPER_ERROR, { error: `An error has occurred: ${error}` });
  }
  let result;
  try {
    result = await promise;
  } catch (error) {
    console.error(error);
    return reply(APPLICATION_ERROR, { error: said(error) });
  }
  return judge(result === undefined ? {} : result);
}

function said(error) {
  if (error instanceof Error) return { name: error.name, message: error.message, stack: error.stack, ...error };
  try {
    return JSON.stringify(error) === undefined ? {} : error;
  } catch {
    return String(error);
  }
}

function judge(result) {
  if (typeof result !== 'object' || result === null) return reply(DEVELOPER_ERROR, { error: NO_DICTIONARY });
  const failed = !Array.isArray(result) && 'error' in result;
  let body;
  try {
    body = JSON.stringify(failed ? { error: result.error ?? null } : result);
  } catch (error) {
    return reply(DEVELOPER_ERROR, { error: `The action's result is not valid JSON: ${error.message}.` });
  }
  const size = Buffer.byteLength(body);
  const allowed = description.result_bytes;
  if (size > allowed) {
    const start = body.slice(0, Math.min(1024, allowed));
    const text = `The action produced a response that exceeded the allowed length: ${size} > ${allowed} bytes.`;
    return reply(APPLICATION_ERROR, { error: `${text} The truncated response was: ${start}` });
  }
  return reply(failed ? APPLICATION_ERROR : SUCCESS, body);
}

// --- frames --------------------------------------------------------------------------------------------------

function serve(main) {
  let parts = [];
  let have = 0;
  let need = HEADER;
  socket.on('data', (data) => {
    parts.push(data);
    have += data.length;
    if (have < need) return;
    const whole = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    const middle = HEADER + whole.readUInt32LE(4);
    need = middle + whole.readUInt32LE(8);
    parts = [whole];
    if (have < need) return;
    [parts, have, need] = [[], 0, HEADER];
    const what = whole.readUInt8(0);
    if (what === RUN) run(main, whole.toString('utf8', HEADER, middle), whole.toString('utf8', middle));
    else reply(DEVELOPER_ERROR, { error: what === INIT ? TWICE : NOT_JSON });
  });
}

// The packages of the kind are found from the working directory and from the directory of an archive, which is in it.
if (process.argv[2]) fs.symlinkSync(process.argv[2], path.join(process.cwd(), 'node_modules'));
socket.on('close', () => process.exit(0)); // the server has gone
Object.assign(process.env, description.env);
load().then(
  (main) => { serve(main); reply(SUCCESS, '{}'); },
  (error) => reply(DEVELOPER_ERROR, { error: initFailure(error) }),
);
