"""A real server with a real origin on loopback, and what tests of datasets ask of both."""

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import httpx

from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until
from aliquot_bench.origin.content import pieces

READER = """
import hashlib, os, subprocess, time
def main(args):
    read = {}
    for path in args["paths"]:
        try:
            with open(os.path.join(os.environ["ALIQUOT_DATASETS"], path), "rb") as file:
                read[path] = hashlib.sha256(file.read()).hexdigest()
        except OSError as error:
            read[path] = error.errno
        time.sleep(args.get("pause", 0))
    return {"read": read}
"""


class FabricServer(LiveServer):
    """`nas` is the dataset, `reader` the function."""

    def as_operator(self, method: str, path: str, **more: object) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.operator}"}
        return httpx.request(method, f"{self.url}/operator/v1/datasets{path}", headers=headers, timeout=60, **more)

    def add(self, name: str, url: str, **body: object) -> None:
        answer = self.as_operator("PUT", f"/{name}", json={"url": url, **body})
        assert answer.status_code == 200, answer.text

    def deploy_reader(self, *datasets: str, name: str = "reader", code: str = READER) -> None:
        self.deploy(name, code, annotations=[{"key": "datasets", "value": list(datasets)}])

    def read(self, *paths: str, session: str = "", key: str | None = None, name: str = "reader", **args: object):
        """Call a reader of these paths and return its record, with annotations by name."""
        with self.client(key) as client:
            params = {"blocking": "true", **({"session": session} if session else {})}
            answer = client.post(f"actions/{name}", params=params, json={"paths": list(paths), **args})
            record = answer.json()
            assert "activationId" in record, answer.text
            record["annotations"] = {one["key"]: one["value"] for one in record["annotations"]}
            return record

    def begin_session(self, user: str = "") -> str:
        with self.client() as client:
            answer = client.post(f"{self.url}/api/v1/sessions", json={"user": user})
            return answer.raise_for_status().json()["sessionId"]

    def end_session(self, session: str) -> None:
        with self.client() as client:
            client.delete(f"{self.url}/api/v1/sessions/{session}").raise_for_status()

    def show(self, name: str) -> dict:
        return self.as_operator("GET", f"/{name}").raise_for_status().json()

    def status(self) -> dict:
        headers = {"authorization": f"Bearer {self.operator}"}
        return httpx.get(f"{self.url}/operator/v1/status", headers=headers).json()

    def figures(self) -> dict:
        return self.status().get("fabric", {})

    def learn(self) -> dict:
        """Train a model from the accesses so far, and return the state of the models."""
        headers = {"authorization": f"Bearer {self.operator}"}
        url = f"{self.url}/operator/v1/models"
        httpx.post(f"{url}/train", headers=headers, timeout=60).raise_for_status()

        return wait_until(
            lambda: httpx.get(url, headers=headers, timeout=60).json(),
            lambda state: not state["training"]["running"],
            what="the training's end",
        )

    def agent(self) -> int:
        """The storage agent's process."""
        for pid in self.descendants():
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"aliquot.storage.agent.process" in command:
                return pid
        raise LookupError("there is no storage agent")

    def kill_agent(self) -> int:
        pid = self.agent()
        os.kill(pid, signal.SIGKILL)
        return pid


def digest(path: str, size: int) -> str:
    """Return the checksum of a file of the origin."""
    found = hashlib.sha256()
    for piece in pieces(path, 0, size):
        found.update(piece)
    return found.hexdigest()


def mounts_of(server: LiveServer) -> list[str]:
    """Return the mounts of the server that this process sees."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(server.data) in line]


def stop_origin(link) -> None:
    link._process.send_signal(signal.SIGKILL)
    link._process.wait()


def run(*command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)
