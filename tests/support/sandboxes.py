"""A real node for the tests of sandboxes, and a listener that can be awaited."""

import asyncio
import base64
import contextlib
import functools
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from aliquot.core.model import DeviceSpec
from aliquot.live.node.base import Launch, Outcome, RunRequest
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, choose, probe
from aliquot.live.node.local import LocalNode
from aliquot.testing.waiting import TIMEOUT_S, wait_on_loop

DEVICES = (
    DeviceSpec("cpu", kind="cpu", concurrency=8),
    DeviceSpec("host-1", kind="host", memory_bytes=2**30),
)
ECHO = "def main(args):\n    return args\n"
BROKEN = {"error": "The action failed to generate or locate a binary. See logs for details."}


needs_nodejs = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
with_and_without_walls = pytest.mark.parametrize("walls", [True, False], ids=["walls", "no_walls"])


@functools.cache
def strongest() -> Isolation:
    """Return the strongest isolation that this machine offers. It is probed once."""
    return choose(probe(Path("/nowhere")))


def isolation(walls: bool) -> Isolation:
    return strongest() if walls else NO_ISOLATION


# A child that leaves its session and its parent, and can be found from outside by its arguments.
RUNAWAY_CODE = """
import os, subprocess, sys, time
CHILD = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\ntime.sleep(1000)"
def main(args):
    subprocess.Popen([sys.executable, "-c", CHILD, args["tag"]], start_new_session=True)
    print("started", flush=True)
    if args.get("leave"):
        time.sleep(0.3)
        os._exit(1)
    time.sleep(args.get("sleep", 0))
    return {}
"""


class Heard:
    """A listener that queues the reports of a node."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def sandbox_started(self, sandbox, init_s, logs):
        self.queue.put_nowait(("started", sandbox, logs))

    def sandbox_lost(self, sandbox, outcome):
        self.queue.put_nowait(("lost", sandbox, outcome))

    def sandbox_refused(self, sandbox):
        self.queue.put_nowait(("refused", sandbox, None))

    def memory_loaded(self, sandbox):
        self.queue.put_nowait(("loaded", sandbox, None))

    def device_lost(self, device, why):
        self.queue.put_nowait(("device lost", device, why))

    def run_finished(self, sandbox, outcome):
        self.queue.put_nowait(("finished", sandbox, outcome))

    def runs_taken_back(self, sandbox, count):
        self.queue.put_nowait(("taken back", sandbox, count))

    def began_inside(self, sandbox, function):
        return f"nobody knows a function {function}"

    def ended_inside(self, sandbox, outcome):
        self.queue.put_nowait(("ended inside", sandbox, outcome))


class NodeRig:
    """A real node under test: starts sandboxes, runs payloads, and waits for what the node reports."""

    def __init__(self, node: LocalNode, heard: Heard):
        self.node = node
        self.heard = heard
        self.last = 0

    async def next(self):
        """Wait for the node's next report: what happened, to which sandbox, and its outcome or logs."""
        try:
            return await asyncio.wait_for(self.heard.queue.get(), TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(
                f"waited {TIMEOUT_S:g} s for a report of the node; sandboxes: {self.node.usage()}"
            ) from None

    def launch(self, code: str, **settings) -> int:
        self.last += 1
        fields = {
            "tenant": "guest",
            "function": "f",
            "revision": "1",
            "version": "0.0.1",
            "kind": "python:3.11",
            "code": code,
            "binary": False,
            "main": "main",
            "env": {},
            "timeout_ms": 60_000,
            "memory_bytes": 256 * 2**20,
            "logs_bytes": 2**20,
        }
        number, launch = self.last, Launch(**fields | settings)

        def start(failure):
            if failure is None:
                self.node.start_sandbox(number, launch)
            else:
                self.heard.sandbox_lost(number, failure)

        if launch.requirements:  # as the service does: a start takes no slot before its environment is there
            self.node.build_environment(launch.requirements, launch.tenant, start)
        else:
            start(None)
        return self.last

    async def started(self, code: str, **settings) -> int:
        number = self.launch(code, **settings)
        what, sandbox, said = await self.next()
        assert (what, sandbox) == ("started", number), said
        return number

    async def not_started(self, code: str, **settings) -> Outcome:
        number = self.launch(code, **settings)
        what, sandbox, outcome = await self.next()
        assert (what, sandbox) == ("lost", number), outcome
        return outcome

    def request(self, sandbox: int, payload: object = None, **settings) -> None:
        fields = {
            "invocation": "0" * 32,
            "payload": payload if isinstance(payload, bytes) else json.dumps(payload or {}).encode(),
            "pickled": False,
            "env": {},
            "timeout_ms": 60_000,
            "logs_bytes": 2**20,
        }
        self.node.run(sandbox, RunRequest(**fields | settings))

    def hand_ahead(self, sandbox: int, *payloads: object) -> None:
        """Hand runs to a busy sandbox, and check that it takes them."""
        for payload in payloads:
            request = RunRequest("1" * 32, json.dumps(payload).encode(), False, {}, 60_000, 2**20)
            assert self.node.run_next(sandbox, request), f"the sandbox does not take {payload} ahead"

    async def run(self, sandbox: int, payload: object = None, **settings) -> Outcome:
        """Run a payload, and check that the sandbox can take another run."""
        self.request(sandbox, payload, **settings)
        what, of, outcome = await self.next()
        assert (what, of) == ("finished", sandbox), outcome
        return outcome

    async def run_and_lose(self, sandbox: int, payload: object = None, **settings) -> Outcome:
        self.request(sandbox, payload, **settings)
        what, of, outcome = await self.next()
        assert (what, of) == ("lost", sandbox), outcome
        return outcome

    async def until_printed(self, sandbox: int, text: str) -> None:
        """Wait until the sandbox's run has printed this."""
        await wait_on_loop(
            lambda: self.node.output(sandbox),
            lambda lines: lines and text in "".join(lines[0]),
            what=f"the output {text!r}",
        )


@contextlib.asynccontextmanager
async def node(data: Path, **settings) -> AsyncIterator[NodeRig]:
    heard = Heard()
    local = LocalNode(data, settings.pop("devices", DEVICES), **{"isolation": strongest(), **settings})
    await local.start(heard)
    try:
        yield NodeRig(local, heard)
    finally:
        await local.stop()


def play(data: Path, scene: Callable[[NodeRig], Awaitable[None]], **settings) -> None:
    """Run a scene on a fresh node, on the event loop that the server uses."""

    async def played() -> None:
        async with node(data, **settings) as rig:
            await scene(rig)

    uvloop.run(played())


def control_groups(name: str) -> list[Path]:
    """Return all control groups with this name. Groups of other servers may vanish meanwhile, which a walk ignores."""
    return [Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") if name in below]


def result(outcome: Outcome) -> object:
    return json.loads(bytes(outcome.result))


def texts(outcome: Outcome, stream: str = "stdout") -> list[str]:
    """Return the printed lines without their times."""
    return [line[39:] for line in outcome.logs if line[31:37] == stream]


def zipped(files: dict[str, str | int]) -> str:
    """Return the files as base64 of a zip, as an action's code. A number stands for as many zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, bytes(content) if isinstance(content, int) else content)
    return base64.b64encode(buffer.getvalue()).decode()


def tarred(files: dict[str, str]) -> str:
    """Return the files as base64 of a tar.gz, as an action's code."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
    return base64.b64encode(buffer.getvalue()).decode()
