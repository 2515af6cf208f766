"""A stand-in for the platform, small enough to read: the contract's requests, functions run in threads of its process.

Run as `python stub_server.py FOLDER`; it writes FOLDER/local.json once it listens.
"""

import asyncio
import base64
import io
import json
import os
import pickle
import socket
import sys
import traceback
import types
import uuid
import zipfile
from pathlib import Path
from urllib.parse import parse_qs, unquote

import uvicorn

PICKLE = b"application/x-aliquot-pickle"
KEY = "23bc46b1-71f6-4ed5-8c54-816aa4f8c502:secret"
PATIENCE_S = 0.3  # instead of the platform's 60

actions, activations, tasks, counts = {}, {}, set(), {"PUT": 0, "GET": 0, "POST": 0, "busy": 0}


def load(body):
    module = types.ModuleType("action")
    sys.modules["action"] = module
    code = body["exec"]["code"]
    if not code.rstrip().endswith("=") and " " in code:
        exec(compile(code, "action.py", "exec"), module.__dict__)  # noqa: S102 - that is what a platform does
        return module
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(code)))
    folder = Path(sys.argv[1]) / uuid.uuid4().hex
    archive.extractall(folder)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    exec(compile((folder / "__main__.py").read_text(), "__main__.py", "exec"), module.__dict__)  # noqa: S102 - as above
    return module


def run(name, payload):
    """Status, content type, body."""
    action = actions[name]
    try:
        if action.get("module") is None:
            action["module"] = load(action)
        args, kwargs = pickle.loads(payload)  # noqa: S301 - as above
        value = getattr(action["module"], action["exec"]["main"]).raw(*args, **kwargs)
    except SystemExit:
        return (
            2,
            b"application/json",
            b'{"error":"The action did not produce a valid response and exited unexpectedly."}',
        )
    except BaseException as error:  # noqa: BLE001 - it travels
        error.add_note("remote traceback:\n" + traceback.format_exc())
        return 1, PICKLE, pickle.dumps(error)
    return 0, PICKLE, pickle.dumps(value, protocol=5)


async def invoke(name, payload, query):
    activation = uuid.uuid4().hex
    if counts["busy"]:
        counts["busy"] -= 1
        return 429, {}, {"error": "Too many concurrent requests in flight (count: 2, allowed: 1).", "code": "t"}

    async def work():
        activations[activation] = await asyncio.to_thread(run, name, payload)

    task = asyncio.create_task(work())
    tasks.add(task)
    if query.get("blocking") == ["true"]:
        await asyncio.wait([task], timeout=PATIENCE_S)
        if task.done():
            return outcome(activation)
    return 202, {b"x-openwhisk-activation-id": activation.encode()}, {"activationId": activation}


def outcome(activation):
    status, kind, body = activations[activation]
    headers = {
        b"content-type": kind,
        b"x-aliquot-status": str(status).encode(),
        b"x-openwhisk-activation-id": activation.encode(),
    }
    return (200 if status == 0 else 502), headers, body


async def answer(scope, body):
    query = parse_qs(scope["query_string"].decode())
    headers = dict(scope["headers"])
    parts = [unquote(part) for part in scope["raw_path"].decode().split("/")][1:]
    method = scope["method"]
    counts[method] = counts.get(method, 0) + 1
    missing = {"error": "The requested resource does not exist.", "code": "t"}
    if parts[0] == "stub":
        counts.update({key: int(value[0]) for key, value in query.items()})
        return 200, {}, counts
    if headers.get(b"authorization") != b"Basic " + base64.b64encode(KEY.encode()):
        return 401, {}, {"error": "The supplied authentication is invalid.", "code": "t"}
    collection, name = parts[4], parts[5]
    if collection == "activations":
        if method == "DELETE":
            activations[name] = (2, b"application/json", b'{"error":"cancelled"}')
            return 200, {}, {}
        return outcome(name) if name in activations else (404, {}, missing)
    if method == "PUT":
        new = json.loads(body)
        old = actions.get(name, {"annotations": [], "version": "0.0.0"})
        gone = {*new.get("delAnnotations", ()), *(pair["key"] for pair in new["annotations"])}
        new["annotations"] += [pair for pair in old["annotations"] if pair["key"] not in gone]
        new["version"] = f"0.0.{int(old['version'].rsplit('.', 1)[1]) + 1}"
        actions[name] = new
        return 200, {}, shown(new)
    if name not in actions:
        return 404, {}, missing
    if method == "GET":
        return 200, {}, shown(actions[name])
    if method == "DELETE":
        return 200, {}, shown(actions.pop(name))
    return await invoke(name, body, query)


def shown(action):
    return {key: value for key, value in action.items() if key != "module"}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    status, headers, content = await answer(scope, body)
    headers = {b"content-type": b"application/json", **headers}
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers[b"content-length"] = str(len(content)).encode()
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": content})


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    place = Path(sys.argv[1]) / "local.json"
    local = {"url": url, "namespace": "me", "key": KEY, "operator": "op", "pid": os.getpid()}
    place.with_suffix(".new").write_text(json.dumps(local))
    place.with_suffix(".new").rename(place)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
