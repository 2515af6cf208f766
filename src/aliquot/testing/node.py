"""A node without sandboxes: the test decides how each start and each run ends."""

from collections.abc import Callable, Sequence

from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.places import Place
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, NodeListener, Outcome, RunRequest, SandboxUsage, Status
from aliquot.live.node.environments.build_queue import BuildStatus


class ScriptedNode:
    """Implements `Node` and records its commands in `started`, `running`, `stopped` and others."""

    def __init__(self, devices: Sequence[DeviceSpec] = (DeviceSpec(CPU, CPU, None, 4),)) -> None:
        self.devices = tuple(devices)
        self.listener: NodeListener
        self.started: dict[int, Launch] = {}
        self.starts: list[int] = []  # sandbox numbers in order; none may occur twice
        self.running: dict[int, RunRequest] = {}
        self.ahead: dict[int, list[RunRequest]] = {}  # by sandbox: runs that were handed to it while it was busy
        self.stopped: list[int] = []
        self.unloaded: list[int] = []
        self.moves: dict[int, tuple[Place, Callable[[str | None], None]]] = {}  # asked for, by sandbox
        self.slices: dict[int, tuple[float, float]] = {}
        self.weights: dict[str, float] = {}  # by tenant
        self.pids: dict[int, int] = {}  # by sandbox
        self.used_so_far: dict[int, DeviceUsage] = {}
        self.unbuilt: set[tuple[str, ...]] = set()  # requirements whose environment is missing
        self.builds: list[tuple[tuple[str, ...], Callable[[Outcome | None], None]]] = []  # that have been asked for

    async def start(self, listener: NodeListener) -> None:
        self.listener = listener

    async def stop(self) -> None:
        self.running.clear()

    def prepare(self, launch: Launch) -> None:
        pass

    def has_environment(self, requirements: tuple[str, ...]) -> bool:
        return requirements not in self.unbuilt

    def build_environment(
        self, requirements: tuple[str, ...], _tenant: str, then: Callable[[Outcome | None], None]
    ) -> None:
        self.builds.append((requirements, then))

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        self.started[sandbox] = launch
        self.starts.append(sandbox)

    def run(self, sandbox: int, request: RunRequest) -> None:
        self.running[sandbox] = request

    def run_next(self, sandbox: int, request: RunRequest) -> bool:
        self.ahead.setdefault(sandbox, []).append(request)
        return True

    def take_back(self, sandbox: int) -> None:
        self.listener.runs_taken_back(sandbox, len(self.ahead.pop(sandbox, ())))

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        """Return no output, because nothing runs."""
        return ()

    def stop_sandbox(self, sandbox: int) -> None:
        self.running.pop(sandbox, None)
        self.stopped.append(sandbox)

    def enforces(self, _device: str) -> bool:
        return True

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        self.slices[sandbox] = (share, ceiling)

    def set_weight(self, tenant: str, weight: float) -> None:
        self.weights[tenant] = weight

    def unload(self, sandbox: int) -> None:
        self.unloaded.append(sandbox)

    def load(self, sandbox: int) -> None:
        self.unloaded.remove(sandbox)

    def move(self, sandbox: int, place: Place, then: Callable[[str | None], None]) -> None:
        self.moves[sandbox] = (place, then)

    def usage(self) -> list[SandboxUsage]:
        return []

    def executor_figures(self) -> dict[str, float]:
        return {}

    def build_status(self) -> list[BuildStatus]:
        return [BuildStatus(("guest",), requirements, True, 0.0) for requirements, _ in self.builds]

    def pid_of(self, sandbox: int) -> int | None:
        """Return the pid that the test has set."""
        return self.pids.get(sandbox)

    def device_usage(self) -> list[DeviceUsage]:
        """Return the usage that the test has set."""
        return list(self.used_so_far.values())

    # --- for the test -----------------------------------------------------------------------------------

    def end_builds(self, failure: str | None = None) -> None:
        """End all builds that have been asked for, with success or with this error."""
        builds, self.builds = self.builds, []
        for requirements, then in builds:
            if failure is None:
                self.unbuilt.discard(requirements)
                then(None)
            else:
                then(Outcome(Status.DEVELOPER_ERROR, b'{"error":"%s"}' % failure.encode(), 0))

    def ready(self, sandbox: int, logs: tuple[str, ...] = ()) -> None:
        self.listener.sandbox_started(sandbox, 0.01, logs)

    def finish(
        self,
        sandbox: int,
        result: bytes = b"{}",
        logs: tuple[str, ...] = (),
        inside_s: float = 0.0,
        pickled: bytes | None = None,
    ) -> None:
        del self.running[sandbox]
        if self.ahead.get(sandbox):
            self.running[sandbox] = self.ahead[sandbox].pop(0)
        self.listener.run_finished(sandbox, Outcome(Status.SUCCESS, result, 0.001, logs, pickled, inside_s=inside_s))

    def lose(self, sandbox: int, text: str = "it exited") -> None:
        self.running.pop(sandbox, None)
        outcome = Outcome(Status.DEVELOPER_ERROR, b'{"error":"%s"}' % text.encode(), 0.001)
        self.listener.sandbox_lost(sandbox, outcome)

    def refuse(self, sandbox: int) -> None:
        self.running.pop(sandbox, None)
        self.listener.sandbox_refused(sandbox)
