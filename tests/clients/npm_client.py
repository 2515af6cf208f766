"""The npm client `openwhisk`, unmodified, with its verbs as Python methods: `client.actions.create({...})`."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from npm_modules import MODULES

HERE = Path(__file__).parent
NODE = shutil.which("node")
HAS_CLIENTS = NODE is not None and (MODULES / "openwhisk").is_dir()
needs_node = pytest.mark.skipif(not HAS_CLIENTS, reason="node or its clients are not installed: they cannot be tried")


class ClientError(Exception):
    """The error with which the client rejected a promise."""

    def __init__(self, said):
        super().__init__(said["message"])
        self.name, self.status, self.body = said["name"], said.get("statusCode"), said.get("error")
        if isinstance(self.body, dict) and "error" in self.body:
            self.text = self.body["error"]


class NpmClient:
    """One node process, asked one thing after the other."""

    def __init__(self, environment=None, **options):
        assert MODULES.is_dir(), "`make .venv/clients.stamp` sets up the clients"
        # The client takes missing options from its environment.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("__OW_")}
        kept |= {"NODE_PATH": str(MODULES), "NODE_NO_WARNINGS": "1"}
        self.options = options
        self._process = subprocess.Popen(
            [NODE, HERE / "drive.js"],
            env=kept | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("actions", "activations", "namespaces", "packages", "rules", "triggers", "feeds", "routes"):
            setattr(self, name, Resource(self, name))

    def ask(self, resource, verb, args):
        line = json.dumps({"options": self.options, "resource": resource, "verb": verb, "args": args})
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the client has ended"
        said = json.loads(answer)
        if "message" in said:
            raise ClientError(said)
        return said.get("value")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Resource:
    def __init__(self, client, name):
        self._client, self._name = client, name

    def __getattr__(self, verb):
        return lambda *args: self._client.ask(self._name, verb, args)


def buffer(data):
    """Bytes, as the client's Buffer."""
    return {"$base64": base64.b64encode(data).decode()}
