"""A real cluster on this machine: a head, and node agents as processes of their own, for tests and benchmarks."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

STOP_TIMEOUT_S = 60


class LiveNode:
    """Runs `aliquot node join` with a data folder of its own."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self.process: subprocess.Popen[bytes]

    def start(self) -> Self:
        """Start the node. It joins later."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def agent(self) -> int:
        """Return the process id of the agent, which the process of `aliquot node join` looks after."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = wait_until(lambda: children.read_text().split(), what=f"the agent of node {self.name}")
        return int(pids[0])

    def signal_agent(self, number: int) -> None:
        """Send a signal to the agent."""
        os.kill(self.agent(), number)

    def stop(self) -> int:
        """Stop the node, like an operator, and return the exit code. Kill it if it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End the node and its agent without a shutdown."""
        if self.process.poll() is None:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            self.process.kill()
            self.process.wait()
            for pid in children:
                os.kill(int(pid), signal.SIGKILL)


class LiveCluster(LiveServer):
    """A head with nodes on this machine. The folder of each node is beside the head's."""

    def __init__(
        self,
        data: Path,
        *options: str,
        transport: str = "tls",
        node_devices: str = "host:1",
        node_host: str = "127.0.0.1",
    ) -> None:
        with socket.create_server((node_host, 0)) as free:
            self.node_port = free.getsockname()[1]  # the same after a restart, so that nodes find the head again
        where = ("--node-host", node_host, "--node-port", str(self.node_port), "--node-transport", transport)
        super().__init__(data, "--cluster", *where, *options)
        self._transport = transport
        self._node_devices = node_devices
        self._nodes_folder = Path(tempfile.mkdtemp(prefix="aliquot-nodes-"))
        weakref.finalize(self, shutil.rmtree, self._nodes_folder, ignore_errors=True)
        self.nodes: dict[str, LiveNode] = {}

    def token(self, *, rotate: bool = False) -> dict[str, str]:
        """Return the token for nodes and the address that they connect to."""
        found: dict[str, str] = self.operate("PUT" if rotate else "POST", "nodes/token")
        return found

    def node_command(self, name: str, *options: str, token: str | None = None) -> list[str]:
        """Return the command line by which a node joins."""
        found = self.token()
        data = self._nodes_folder / name
        return [
            *(sys.executable, "-m", "aliquot", "node", "join", found["address"], "--token", token or found["token"]),
            *("--name", name, "--data", str(data), "--node-transport", self._transport),
            *("--devices", self._node_devices, *options),
        ]

    def add_node(self, name: str, *options: str, program: tuple[str, ...] = ()) -> LiveNode:
        """Start a node, and wait until it takes work. `program` starts the command elsewhere, as `ip netns exec`."""
        command = [*program, *self.node_command(name, *options)]
        node = LiveNode(name, command, self._nodes_folder / f"{name}.log")
        self.nodes[name] = node.start()
        self.wait_for_state(name, "ready")
        return node

    def node(self, name: str) -> dict[str, Any]:
        """Return what the head says about a node."""
        found: dict[str, Any] = self.operate("GET", f"nodes/{name}")
        return found

    def wait_for_state(self, name: str, *states: str) -> dict[str, Any]:
        """Wait until a node has one of these states."""

        def look() -> dict[str, Any] | None:
            found = {each["name"]: each for each in self.operate("GET", "nodes")}.get(name)
            node = self.nodes.get(name)
            if node is not None and node.process.poll() is not None and "away" not in states:
                raise RuntimeError(f"node {name} has ended:\n{node.log.read_text()}")
            return found if found is not None and found["state"] in states else None

        what = f"node {name} to be {' or '.join(states)}"
        found: dict[str, Any] | None = wait_until(look, what=what, pause_s=0.05)
        assert found is not None  # noqa: S101 - it has waited for it
        return found

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for node in self.nodes.values():
            node.kill()
        super().__exit__(kind, error, _)
