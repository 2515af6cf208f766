"""A scheduler under observation: events in, commands out, and the books checked after every step."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.commands import Command, Dispatch, LoadMemory, Run, StartSandbox
from aliquot.core.events import (
    DeviceAdded,
    Event,
    FunctionDeployed,
    InvocationArrived,
    MemoryLoaded,
    RunFinished,
    SandboxStarted,
    TenantWeightSet,
)
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Queueing
from aliquot.core.invariants import check
from aliquot.core.model import DEFAULT_TENANT, DeviceSpec, FunctionSpec
from aliquot.core.places import place_text
from aliquot.core.view import View
from aliquot.policies.queueing import QUEUEING

C = TypeVar("C", bound=Command)


class Harness:
    """Plays the shell. `send` gives the core events; `now` moves only forward, by `at` or by `wait`."""

    def __init__(
        self,
        policy: str = "fcfs",
        *,
        devices: Sequence[DeviceSpec],
        functions: Sequence[FunctionSpec] = (),
        params: Mapping[str, Mapping[str, str]] | None = None,
        keepalive: str | None = None,
        tenant_weights: Mapping[str, float] | None = None,
        queueing: Mapping[str, type[Queueing]] = QUEUEING,
        seed: int = 0,
        sharing: str = "hard",
        packing: str = "first_fit",
        prefetching: str = "threshold",
    ) -> None:
        own = {name: dict(values) for name, values in (params or {}).items()}
        settings = PolicySettings(policy, keepalive, None, own, seed, sharing, packing, prefetching)
        self.scheduler = assemble(settings, queueing)
        self.now: float = 0
        self.log: list[Command] = []
        self._calls = 0
        self.send(
            *(DeviceAdded(device) for device in devices),
            *(TenantWeightSet(tenant, weight) for tenant, weight in (tenant_weights or {}).items()),
            *(FunctionDeployed(DEFAULT_TENANT, function) for function in functions),
        )

    def send(self, *events: Event, at: float | None = None) -> list[Command]:
        """One step with these events, all at once."""
        if at is not None:
            self.now = at
        commands = self.scheduler.step(self.now, events)
        check(self.scheduler)
        self.log += commands
        return commands

    def call(
        self, *functions: str, at: float | None = None, tenant: str = DEFAULT_TENANT, session: str | None = None
    ) -> list[Command]:
        """One invocation of each function named, in order, at one moment; they are named by number from 0 on."""
        events = []
        for name in functions:
            events.append(InvocationArrived(str(self._calls), tenant, name, session=session))
            self._calls += 1
        return self.send(*events, at=at)

    def ready(self, commands: Sequence[Command], at: float | None = None) -> list[Command]:
        """What was to be started or loaded is."""
        events: list[Event] = [SandboxStarted(command.sandbox) for command in of_type(StartSandbox, commands)]
        events += [MemoryLoaded(command.sandbox) for command in of_type(LoadMemory, commands)]
        return self.send(*events, at=at)

    def finish(self, invocation: str, *, run_s: float = 1, at: float | None = None) -> list[Command]:
        """A running invocation is done."""
        sandbox = self.scheduler.invocations[invocation].sandbox
        return self.send(RunFinished(invocation, sandbox.id if sandbox else 0, run_s), at=at)

    def run_all(self, commands: Sequence[Command], *, run_s: float = 1) -> list[Command]:
        """Make ready, run and finish everything that these commands set going; returns what follows."""
        running = of_type(Run, [*commands, *self.ready(commands)])
        following: list[Command] = []
        for command in running:
            following += self.finish(command.invocation, run_s=run_s)
        return following

    def flow(self, function: str, tenant: str = DEFAULT_TENANT) -> Flow:
        return self.scheduler.registry.flow(tenant, function)

    def policy(self, domain: str = "accelerator") -> Queueing:
        return self.scheduler.registry.domains[domain].policy

    def view(self, domain: str = "accelerator") -> View:
        return self.scheduler.registry.domains[domain].view


def of_type(kind: type[C], commands: Sequence[Command]) -> list[C]:
    """The commands of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def dispatched(commands: Sequence[Command]) -> list[tuple[str, str, str]]:
    """Invocation, device and kind of start of each dispatch."""
    return [
        (command.invocation, place_text(command.place), str(command.start)) for command in of_type(Dispatch, commands)
    ]
