"""A real server with the origin's files as a dataset, users who are its tenants, and their sessions."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

from aliquot.testing.server import LiveServer
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.origin.link import OriginLink
from aliquot_bench.prefetch.trial import SessionTrial, make_trial, moved_between
from aliquot_bench.prefetch.workload import ReadSession

DATASET = "lab"
FUNCTION = "reader"
CODE = Path(__file__).with_name("functions") / "reader.py"
MAX_RUN_MS = 300_000  # a run
FORGETFUL = ("--keepalive", "fixed_ttl", "--param", "fixed_ttl.ttl_s=0")  # every call finds a sandbox of its own
POLL_S = 0.1
SETTLE_S = 0.1  # what is cancelled at the end of a session may still be on the cable


class PrefetchPlatform:
    """A running server. Sandboxes are not kept: every session finds a cold one, as on a cold node."""

    def __init__(self, server: LiveServer, link: OriginLink, clients: dict[str, httpx.Client], *, shared: bool) -> None:
        self._server, self._link, self._clients, self._shared = server, link, clients, shared

    def command(self, *arguments: str) -> str:
        """`aliquot …`, as its operator would type it."""
        environment = {**os.environ, "ALIQUOT_DATA": str(self._server.data)}
        for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "aliquot", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise MeasurementError(f"aliquot {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def measure(self, session: ReadSession, lead_s: float = 0, *, plain: bool = False) -> SessionTrial:
        """One session from its creation to its end, and what the origin sent meanwhile."""
        before = self._link.counted().sent
        trial = self.run(session, lead_s, plain=plain)
        time.sleep(SETTLE_S)
        return replace(trial, moved=moved_between(before, self._link.counted().sent))

    def run(self, session: ReadSession, lead_s: float = 0, *, plain: bool = False) -> SessionTrial:
        """Create the session, wait for `lead_s`, call the reader, end the session."""
        client = self._clients[session.user]
        created = time.monotonic()
        who = {"name": session.user, **({"user": session.user} if self._shared else {})}
        begun = client.post("/api/v1/sessions", json=who).raise_for_status().json()["sessionId"]
        try:
            time.sleep(max(0.0, created + lead_s - time.monotonic()))
            args: dict[str, Any] = {"files": [file.path for file in session.files], "dataset": DATASET}
            if plain:
                args["origin"] = self._link.url
            sent_at = time.monotonic()
            record = self._call(client, begun, args)
        finally:
            client.delete(f"/api/v1/sessions/{begun}").raise_for_status()
        trial = make_trial(session, lead_s, sent_at, record["response"]["result"], _notes(record))
        if trial.read_bytes != session.bytes:
            raise MeasurementError(f"{session.user} read {trial.read_bytes} bytes, not {session.bytes}")
        return trial

    def _call(self, client: httpx.Client, session: str, args: dict[str, Any]) -> dict[str, Any]:
        query = {"blocking": "true", "session": session}
        answer = client.post(f"/api/v1/namespaces/_/actions/{FUNCTION}", params=query, json=args)
        record: dict[str, Any] = answer.json()
        if not answer.is_success or not record.get("response", {}).get("success"):
            told = record.get("response", record)
            raise MeasurementError(f"the reader's call answered {answer.status_code}: {str(told)[:400]}")
        return record

    def warm(self) -> None:
        """Bring everything."""
        self.command("dataset", "warm", DATASET)

    def add(self) -> None:
        """The origin's files as a dataset, and what files there are."""
        self._operate("PUT", f"datasets/{DATASET}", json={"url": self._link.url})
        self._operate("GET", f"datasets/{DATASET}")

    def empty(self) -> None:
        """Make it a cold node: nothing is in the cache; the names of the files and what was learned stay."""
        self._operate("POST", f"datasets/{DATASET}/evict")
        self._operate("GET", f"datasets/{DATASET}")

    def learn(self) -> str:
        """Train on what the log holds, now; the name of what serves then."""
        state = self._operate("POST", "models/train")
        while state["training"] is None or state["training"]["running"]:
            time.sleep(POLL_S)
            state = self._operate("GET", "models")
        if state["training"]["error"]:
            raise MeasurementError(f"nothing was learned: {state['training']['error']}")
        return str(state["model"])

    def _operate(self, method: str, path: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - httpx's
        try:
            told: dict[str, Any] = self._server.operate(method, path, **more)
        except RuntimeError as error:
            raise MeasurementError(str(error)) from error
        return told


@contextmanager
def serving(link: OriginLink, users: Sequence[str], *options: str, tenant: str = "") -> Iterator[PrefetchPlatform]:
    """Each user is a tenant, or all are users of one."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        server = stack.enter_context(LiveServer(folder / "data", *FORGETFUL, *options))
        tenants = {name: stack.enter_context(_client(server, name)) for name in ([tenant] if tenant else users)}
        platform = PrefetchPlatform(
            server, link, {user: tenants[tenant or user] for user in users}, shared=bool(tenant)
        )
        platform.add()
        for client in tenants.values():
            _deploy(client)
        yield platform


def _client(server: LiveServer, user: str) -> httpx.Client:
    name, _, secret = server.create_namespace(user).partition(":")
    return httpx.Client(base_url=server.url, auth=(name, secret), timeout=MAX_RUN_MS / 1000)


def _deploy(client: httpx.Client) -> None:
    action = {
        "exec": {"kind": "python:3.11", "code": CODE.read_text(encoding="utf-8")},
        "annotations": [{"key": "datasets", "value": [DATASET]}],
        "limits": {"timeout": MAX_RUN_MS},
    }
    answer = client.put(f"/api/v1/namespaces/_/actions/{FUNCTION}", params={"overwrite": "true"}, json=action)
    if not answer.is_success:
        raise MeasurementError(f"the reader cannot be deployed: {answer.status_code}: {answer.text[:400]}")


def _notes(record: dict[str, Any]) -> dict[str, Any]:
    return {note["key"]: note["value"] for note in record["annotations"]}
