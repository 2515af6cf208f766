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
const BROKEN = 'The action failed to generate or locate a binary. See logs for details.';
const FAILED = 'Cannot start action. Check logs for details.';
const TWICE = 'Cannot initialize the action more than once.';
const NOT_JSON = "The action takes and returns JSON; this kind of function cannot be called with Python's objects.";
const NO_DICTIONARY = 'The action did not return a dictionary.';

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
  if (!/^[\w$]+(\.[\w$]+)*$/.test(main)) return complain(`'${main}' is not a function's name.`);
  const found = directory ? await loadPackage(directory, main) : loadText(code, main);
  return typeof found === 'function' ? found : complain(`The code defines no function '${main}'.`);
}

function complain(text, answer = FAILED) {
  console.error(text);
  throw new Refusal(answer);
}

function member(exported, main) {
  return main.split('.').reduce((value, name) => (value === undefined || value === null ? value : value[name]), exported);
}

function loadText(code, main) {
  const file = path.join(process.cwd(), 'index.js');
  const module = new Module(file, null);
  module.filename = file;
  module.paths = Module._nodeModulePaths(process.cwd());
  const pick = `\n;try { module.exports.__main = ${main}; } catch (error) { if (!(error instanceof ReferenceError)) throw error; }`;
  try {
    new (require('node:vm').Script)(Module.wrap(code), { filename: file });
  } catch (error) {
    complain(error, BROKEN);
  }
  try {
    module._compile(code + pick, file);
  } catch (error) {
    complain(error);
  }
  return module.exports.__main ?? member(module.exports, main);
}

async function loadPackage(directory, main) {
  process.chdir(directory);
  const has = (name) => fs.existsSync(path.join(directory, name));
  if (!has('package.json') && !has('index.js')) {
    complain('Zipped actions must contain either package.json or index.js at the root.', BROKEN);
  }
  try {
    return member(Module.createRequire(path.join(directory, 'index.js'))(directory), main);
  } catch (error) {
    if (error.code !== 'ERR_REQUIRE_ESM') return complain(error, error instanceof SyntaxError ? BROKEN : FAILED);
  }
  try {
    const entry = has('package.json') ? JSON.parse(fs.readFileSync(path.join(directory, 'package.json'))).main : undefined;
    const module = await import(url.pathToFileURL(path.join(directory, entry ?? 'index.js')));
    return member(module, main) ?? member(module.default, main);
  } catch (error) {
    return complain(error, error instanceof SyntaxError ? BROKEN : FAILED);
  }
}

// --- runs ----------------------------------------------------------------------------------------------------

async function run(main, env, payload) {
  Object.assign(process.env, JSON.parse(env));
  let promise;
  try {
    promise = main(JSON.parse(payload));
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

socket.on('close', () => process.exit(0)); // the server has gone
Object.assign(process.env, description.env);
load().then(
  (main) => { serve(main); reply(SUCCESS, '{}'); },
  (error) => {
    if (!(error instanceof Refusal)) console.error(error);
    reply(DEVELOPER_ERROR, { error: error instanceof Refusal ? error.message : FAILED });
  },
);
