"""A shell that misbehaves at random: commands end in any order, sandboxes and devices are lost, calls are cancelled.

All choices come from a seeded generator, so a failure can be reproduced. The core's invariants are checked after every
step, and every invocation must end exactly once.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from aliquot.core.admission.records import Late, Prefer
from aliquot.core.clock import after
from aliquot.core.commands import (
    BreakPromise,
    CancelFetch,
    Command,
    Complete,
    Fail,
    Fetch,
    LoadMemory,
    Move,
    Predict,
    Promise,
    Reject,
    Run,
    RunNext,
    StartSandbox,
    StopSandbox,
    TakeBack,
    UnloadMemory,
    WakeAt,
)
from aliquot.core.events import (
    DatasetHeld,
    DeviceAdded,
    DeviceLost,
    Event,
    ExecutionEnded,
    FunctionDeployed,
    FunctionRemoved,
    HostMemorySet,
    InvocationArrived,
    InvocationCancelled,
    MemoryLoaded,
    NodeBack,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
    RunFinished,
    RunsTakenBack,
    SandboxLost,
    SandboxStarted,
    TenantWeightSet,
    UtilisationMeasured,
    Woke,
)
from aliquot.core.model import DeviceSpec, FunctionSpec, NodeSpec
from aliquot.core.places import Place
from aliquot.policies.batching import BATCHING
from aliquot.testing.chaos_fabric import ChaosFabric
from aliquot.testing.chaos_graphs import ChaosGraphs
from aliquot.testing.chaos_moves import ChaosMoves
from aliquot.testing.chaos_promises import ChaosPromises
from aliquot.testing.harness import Harness

MAX_WAKES = 200  # in a row without anything under way, after which a call is taken to wait for ever
SESSIONS = ("s1", "s2", "s3")
MOVABLE = 0.7  # probability that the driver of a device moves live sandboxes
RARELY = 0.2  # probability of a failure in a batch


class ChaosShell:
    """Drives a scheduler with random events."""

    def __init__(
        self,
        policy: str,
        *,
        devices: Sequence[DeviceSpec],
        functions: Sequence[FunctionSpec],
        seed: int,
        keepalive: str,
        params: Mapping[str, Mapping[str, str]] | None = None,
        host_memory_bytes: int | None = None,
        admission: str = "accept_all",
    ) -> None:
        """Make a shell with these devices. Nodes with a name are lost, suspected and drained as a whole, too."""
        self._random = Random(seed)
        self._devices = devices = [replace(one, movable=self._random.random() < MOVABLE) for one in devices]
        self._functions = list(functions)
        self._harness = Harness(
            policy,
            devices=devices,
            keepalive=keepalive,
            seed=seed,
            params=params,
            batching=self._random.choice(sorted(BATCHING)),
            provisioning="forecast",
            admission=admission,
        )
        nodes = {device.node: None for device in devices}
        if host_memory_bytes is not None:
            self._harness.send(*(HostMemorySet(host_memory_bytes, node) for node in nodes))
        self.fabric = ChaosFabric(self._random, self._harness.scheduler.prefetcher.policy.limits)
        self.moves = ChaosMoves(self._random)
        self._wake: float | None = None
        self._present = {device.name: device for device in devices}
        self._host_memory_bytes = host_memory_bytes
        self._nodes = {node: "up" for node in nodes if node}  # state by name
        self._deployed: dict[tuple[str, str], FunctionSpec] = {}
        self._pending: dict[int, StartSandbox | LoadMemory | Run] = {}  # the pending command of each sandbox
        self._ahead: dict[int, list[str]] = {}  # by sandbox: invocations handed ahead
        self._asked: list[int] = []  # sandboxes whose invocations are to be taken back
        self._alive: dict[int, Place] = {}  # places of live sandboxes
        self._open: dict[str, None] = {}  # invocations that have not ended
        self._objectives = admission != "accept_all"  # calls have deadlines and cost limits
        self._promises = ChaosPromises()
        self.broken = self._promises.broken
        self.ended: dict[str, str] = {}  # name of the last command, by invocation
        self._calls = 0
        self._graphs = ChaosGraphs(self._random)

    def run_steps(self, steps: int) -> None:
        """Take steps with random events, then let everything end."""
        actions: list[tuple[int, Callable[[], list[Event]]]] = [
            (30, self._arrive),
            (40, self._complete),
            (3, self._lose_sandbox),
            (2, self._take_back),
            (3, self._cancel),
            (3, self._deploy),
            (1, self._remove),
            (1, self._lose_device),
            (2, self._add_device),
            (2, self._change_node),
            (2, self._return_node),
            (2, lambda: [TenantWeightSet(self._tenant(), self._random.choice((0.5, 1, 3)))]),
            (2, self._measure),
            *self.fabric.actions(self._deployed, lambda: (self._tenant(), self._random.choice(SESSIONS))),
            *self.moves.actions(self._alive, self._present, self._deployed, lambda: self._harness.now),
            (5, lambda: [Woke()]),
            (8 if self._objectives else 0, self._execute),
            (20 if self._objectives else 0, self._proceed),
        ]
        for _ in range(steps):
            events: list[Event] = []
            for _ in range(self._random.randrange(1, 4)):
                _, action = self._random.choices(actions, [weight for weight, _ in actions])[0]
                events += action()
            self._step(events)
        self._finish_all()

    def _finish_all(self) -> None:
        for name in list(self._nodes):
            self._step(self._return_node(name))
        for name in [device.name for device in self._devices if device.name not in self._present]:
            self._step(self._add_device(name))
        wakes = 0
        while (
            self._pending
            or self.fabric.busy
            or self.moves.busy
            or (self._open and self._may_go_on and wakes < MAX_WAKES)
        ):
            wakes = 0 if self._pending else wakes + 1
            ends = [*self.fabric.end_fetch(), *self.moves.end(self._alive)]
            self._step([*self._complete(), *ends, *self._proceed()])
        if self._open:
            stories = [invocation.describe() for invocation in self._harness.scheduler.invocations.values()]
            raise AssertionError(f"these calls never ended: {stories}")

    @property
    def _answers_late(self) -> bool:
        return self.fabric.busy or self.moves.busy

    @property
    def _may_go_on(self) -> bool:
        return self._wake is not None or bool(self._graphs)

    def _step(self, events: list[Event]) -> None:
        now = after(self._harness.now, self._random.choice((0, 0.1, 1, 7)))
        asked, self._asked = self._asked, []
        for sandbox in asked:
            events += self._take_back(sandbox)
        if self._wake is not None and self._wake <= now:
            self._wake = None
            events.append(Woke())
        for command in self._harness.send(*events, at=now):
            self._perform(command)
        self._graphs.step_ended()
        for event in events:
            if isinstance(event, ExecutionEnded):
                self._end(event.execution, "ExecutionEnded")

    def _perform(self, command: Command) -> None:
        match command:
            case Predict() | Fetch() | CancelFetch():
                self.fabric.perform(command)
            case StartSandbox():
                self._alive[command.sandbox] = command.place
                self._pending[command.sandbox] = command
            case LoadMemory() | Run() | RunNext() | TakeBack() | Move():
                if command.sandbox in self._alive:  # it may have been lost in the same step
                    self._perform_in_sandbox(command)
            case UnloadMemory():
                if command.sandbox in self._pending:
                    raise AssertionError(f"swapped out during {self._pending[command.sandbox]}")
            case StopSandbox():
                self._alive.pop(command.sandbox, None)
                self._forget(command.sandbox)
            case Promise() | BreakPromise() | Complete() | Fail() | Reject():
                self._end_or_promise(command)
            case WakeAt():
                self._wake = command.at

    def _perform_in_sandbox(self, command: LoadMemory | Run | RunNext | TakeBack | Move) -> None:
        if isinstance(command, Move):
            self.moves.perform(command, self._alive)
        elif isinstance(command, RunNext):
            self._ahead.setdefault(command.sandbox, []).append(command.invocation)
        elif isinstance(command, TakeBack):
            self._asked.append(command.sandbox)
        else:
            self._pending[command.sandbox] = command

    def _end_or_promise(self, command: Promise | BreakPromise | Complete | Fail | Reject) -> None:
        if isinstance(command, Promise | BreakPromise):
            self._promises.perform(command, self._open)
        else:
            self._end(command.invocation, type(command).__name__)

    def _end(self, invocation: str, how: str) -> None:
        self._promises.open.pop(invocation, None)
        if invocation not in self._open:
            raise AssertionError(f"{invocation}: {how} after its end by {self.ended.get(invocation)}")
        del self._open[invocation]
        self.ended[invocation] = how
        self._graphs.call_ended(invocation, how)

    # --- actions: each returns events that a real shell could report -------------------------------------

    def _tenant(self) -> str:
        return self._random.choice(("ann", "bob"))

    def _choose(self, names: Sequence[str]) -> str | None:
        return self._random.choice(names) if names else None

    def _arrive(self) -> list[Event]:
        if not self._deployed:
            return self._deploy()
        tenant, function = self._random.choice(list(self._deployed))
        name = f"i{self._calls}"
        self._calls += 1
        self._open[name] = None
        session = self._random.choice((None, *SESSIONS))
        if not self._objectives:
            return [InvocationArrived(name, tenant, function, session=session)]
        deadline_s = self._random.choice((None, 1e-6, 0.5, 3, 20, 31_536_000))
        cost_limit = self._random.choice((None, None, 0, 800, 10_000))
        late, prefer = self._random.choice(list(Late)), self._random.choice(list(Prefer))
        return [InvocationArrived(name, tenant, function, deadline_s, cost_limit, session, late, prefer)]

    def _execute(self) -> list[Event]:
        made = self._graphs.arrive(self._deployed)
        if made is None:
            return []
        self._open[made[0]] = None
        return made[1]

    def _proceed(self) -> list[Event]:
        calls, events = self._graphs.proceed()
        self._open.update(dict.fromkeys(calls))
        return events

    def _complete(self) -> list[Event]:
        if not self._pending:
            return []
        sandbox = self._random.choice(list(self._pending))
        command = self._pending.pop(sandbox)
        if isinstance(command, Run):
            if self._ahead.get(sandbox):
                self._pending[sandbox] = Run(self._ahead[sandbox].pop(0), sandbox)
            run_s, inside_s = self._random.choice(((0, 0), (0.5, 0.00001), (20, 0.00002)))
            again, full = self._failed_members(command), bool(command.riders) and self._random.random() < RARELY
            return [RunFinished(command.invocation, sandbox, run_s, inside_s, again, full)]
        return [SandboxStarted(sandbox) if isinstance(command, StartSandbox) else MemoryLoaded(sandbox)]

    def _lose_sandbox(self) -> list[Event]:
        if not self._alive:
            return []
        sandbox = self._random.choice(list(self._alive))
        del self._alive[sandbox]
        command = self._pending.get(sandbox)
        again = self._failed_members(command) if isinstance(command, Run) else ()
        self._forget(sandbox)
        return [SandboxLost(sandbox, "a failure", again, out_of_memory=self._random.random() < RARELY)]

    def _failed_members(self, command: Run) -> tuple[str, ...]:
        """Return the members of a batch that run again alone: now and then some of them, otherwise none."""
        if not command.riders or self._random.random() > RARELY:
            return ()
        return tuple(name for name in (command.invocation, *command.riders) if self._random.randrange(2))

    def _forget(self, sandbox: int) -> None:
        self._pending.pop(sandbox, None)
        self._ahead.pop(sandbox, None)

    def _take_back(self, sandbox: int | None = None) -> list[Event]:
        """Take back some of the invocations handed ahead to a sandbox, those that would run last."""
        if sandbox is None:
            if not self._ahead:
                return []
            sandbox = self._random.choice(list(self._ahead))
        ahead = self._ahead.get(sandbox, [])
        begun = self._random.randrange(len(ahead) + 1)
        self._ahead[sandbox] = ahead[:begun]
        return [RunsTakenBack(sandbox, tuple(ahead[begun:]))] if sandbox in self._alive else []

    def _cancel(self) -> list[Event]:
        name = self._choose([*self._open])
        return [] if name is None else [InvocationCancelled(name)]

    def _deploy(self) -> list[Event]:
        function = self._random.choice(self._functions)
        tenant = self._tenant()
        self._deployed[tenant, function.name] = function
        return [FunctionDeployed(tenant, function)]

    def _remove(self) -> list[Event]:
        if len(self._deployed) < 2:  # noqa: PLR2004 - keep one function
            return []
        tenant, function = self._random.choice(list(self._deployed))
        del self._deployed[tenant, function]
        self.fabric.function_removed(tenant, function)
        return [FunctionRemoved(tenant, function)]

    def _lose_device(self) -> list[Event]:
        name = self._choose([*self._present])
        if name is None:
            return []
        self._lose_device_named(name)
        return [DeviceLost(name)]

    def _lose_device_named(self, name: str) -> None:
        del self._present[name]
        self.moves.device_lost(name)
        for sandbox in [sandbox for sandbox, place in self._alive.items() if name in place]:
            del self._alive[sandbox]
            self._forget(sandbox)

    def _add_device(self, name: str | None = None) -> list[Event]:
        missing = [
            device
            for device in self._devices
            if device.name not in self._present and self._nodes.get(device.node) != "lost"
        ]
        device = next((device for device in missing if device.name == name), missing[0] if missing else None)
        if device is None:
            return []
        self._present[device.name] = device
        return [DeviceAdded(device)]

    def _change_node(self) -> list[Event]:
        """Lose, suspect or drain a node that is there, or report what it holds."""
        name = self._choose([name for name, state in self._nodes.items() if state != "lost"])
        if name is None:
            return []
        what = self._random.choice(("held", "lost", "suspected", "draining"))
        if what == "held":
            return [DatasetHeld(name, "images", self._random.choice((0, 10, 100)))]
        self._nodes[name] = what
        if what == "suspected":
            return [NodeSuspected(name)]
        if what == "draining":
            return [NodeDraining(name, self._random.choice((None, after(self._harness.now, 20))))]
        for device in [device for device in self._present.values() if device.node == name]:
            self._lose_device_named(device.name)
        self.fabric.node_lost(name)
        return [NodeLost(name, "a failure")]

    def _return_node(self, name: str | None = None) -> list[Event]:
        """Let a node return that is not in service."""
        away = [known for known, state in self._nodes.items() if state != "up"]
        name = self._choose(away) if name is None else name
        if name not in away:
            return []
        before, self._nodes[name] = self._nodes[name], "up"
        if before != "lost":
            return [NodeBack(name)]
        devices = tuple(device for device in self._devices if device.node == name)
        self._present.update((device.name, device) for device in devices)
        return [NodeJoined(NodeSpec(name, self._host_memory_bytes, 100.0), devices)]

    def _measure(self) -> list[Event]:
        name = self._choose([*self._present])
        return [] if name is None else [UtilisationMeasured(name, self._random.random())]
