"""A real server in its own process, for tests, benchmarks and demonstrations."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from aliquot.testing.client import REQUEST_TIMEOUT_S, CallError, NamespaceClient, certificates, check
from aliquot.testing.waiting import wait_until

TRAINING_TIMEOUT_S = 1800
STOP_TIMEOUT_S = 300  # includes the time that running calls get to end


class LiveServer:
    """Runs `aliquot up` with a data directory and a free port.

    Its output goes to the file `log`, which is deleted with this object, or at the latest when the process ends.
    """

    def __init__(
        self, data: Path, *options: str, env: dict[str, str] | None = None, folder: Path | None = None
    ) -> None:
        """`folder` is the place for the folder with the log, by default that of temporary files."""
        self.data = data
        self._options = options
        self._env = env
        self._folder = Path(tempfile.mkdtemp(prefix="aliquot-", dir=folder))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.log = self._folder / "server.log"
        self.process: subprocess.Popen[bytes]
        self.url = self.key = self.namespace = ""

    def start(self) -> Self:
        """Start the server and wait until it answers. Raise `RuntimeError` with its output if it does not."""
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "aliquot", "up", "--data", self.data, "--port", "0", "--ready-file", ready]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                self.command([*map(str, command), *self._options]), stdout=log, stderr=log, env=self._env
            )
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: ready.exists() or self.process.poll() is not None, what="the server", pause_s=0.005)
        if not ready.exists():
            raise RuntimeError(f"the server did not come up:\n{self.log.read_text()}")
        found = json.loads(ready.read_text())
        ready.unlink()  # it has the key, and a test that is killed removes nothing
        self.url, self.key, self.namespace = found["url"], found["key"], found["namespace"]
        return self

    def command(self, command: list[str]) -> list[str]:
        """Return the command line to run. Subclasses override it to start the server in another environment."""
        return command

    @property
    def operator(self) -> str:
        """Return the operator's token."""
        return str(json.loads((self.data / "local.json").read_text())["operator"])

    def client(self, key: str | None = None, **options: Any) -> NamespaceClient:  # noqa: ANN401 - options of httpx
        """Return a client of the namespace with this key, by default of the server's first namespace."""
        return NamespaceClient(self.url, key or self.key, **options)

    def operate(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - options of httpx, and JSON
        """Send a request to the operator's API and return its JSON. Raise `CallError` if it is refused."""
        headers = {"authorization": f"Bearer {self.operator}"}
        options = {"timeout": REQUEST_TIMEOUT_S, "verify": certificates(), **options}
        answer = check(httpx.request(method, f"{self.url}/operator/v1/{path}", headers=headers, **options))
        return answer.json() if answer.content else None

    def metrics(self) -> str:
        """Return the page of metrics with the names of namespaces and actions, which the operator may see."""
        headers = {"authorization": f"Bearer {self.operator}"}
        url, tls = f"{self.url}/metrics", certificates()
        return check(httpx.get(url, headers=headers, timeout=REQUEST_TIMEOUT_S, verify=tls)).text

    def deploy(self, name: str, code: str, **body: Any) -> None:  # noqa: ANN401 - JSON
        """Create or replace an action, as `NamespaceClient.deploy` does."""
        with self.client() as client:
            client.deploy(name, code, **body)

    def create_namespace(self, name: str) -> str:
        """Create a namespace and return its key."""
        return str(self.operate("POST", "namespaces", json={"name": name})["key"])

    def train_models(self) -> str:
        """Train on the access log, and return the model that is then in use. Raise `CallError` if training fails."""
        self.operate("POST", "models/train")
        state = wait_until(
            lambda: self.operate("GET", "models"),
            lambda state: state["training"] is not None and not state["training"]["running"],
            what="the end of the training",
            timeout_s=TRAINING_TIMEOUT_S,
            pause_s=0.1,
        )
        if state["training"]["error"]:
            raise CallError(f"the training failed: {state['training']['error']}")
        return str(state["model"])

    def descendants(self) -> list[int]:
        """Return the ids of all child processes of the server and of their children."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found, pending = [], [self.process.pid]
        while pending:
            pending += (own := children.get(pending.pop(), []))
            found += own
        return found

    def kill(self) -> None:
        """Kill the server without a shutdown, like a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Shut the server down, like an operator, and return its exit code.

        Kill it and raise `RuntimeError` with its output if it does not end.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise RuntimeError(f"the server did not stop in {STOP_TIMEOUT_S} s:\n{self.log.read_text()}") from error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()


def alive(pid: int) -> bool:
    """Return true if a process is running. A zombie is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def open_files(pid: int) -> int:
    """Return the number of open file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
