"""A test harness of the scheduler: it sends events, returns commands, and checks the invariants after every step."""

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
    """Takes the place of a shell. `send` steps the scheduler at `now`, which the argument `at` moves forward."""

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
        pool_slots: int | None = None,
        admission: str = "accept_all",
        batching: str = "target",
        provisioning: str = "none",
    ) -> None:
        own = {name: dict(values) for name, values in (params or {}).items()}
        settings = PolicySettings(
            *(policy, keepalive, None, own, seed, sharing, packing, prefetching, pool_slots),
            admission=admission,
            batching=batching,
            provisioning=provisioning,
        )
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
        """Take one step with all these events, and return its commands."""
        if at is not None:
            self.now = at
        commands = self.scheduler.step(self.now, events)
        check(self.scheduler)
        self.log += commands
        return commands

    def call(
        self, *functions: str, at: float | None = None, tenant: str = DEFAULT_TENANT, session: str | None = None
    ) -> list[Command]:
        """Send one invocation of each named function in one step. Invocations are numbered from 0 on."""
        events = []
        for name in functions:
            events.append(InvocationArrived(str(self._calls), tenant, name, session=session))
            self._calls += 1
        return self.send(*events, at=at)

    def ready(self, commands: Sequence[Command], at: float | None = None) -> list[Command]:
        """Report that the sandboxes of these commands are started and loaded."""
        events: list[Event] = [SandboxStarted(command.sandbox) for command in of_type(StartSandbox, commands)]
        events += [MemoryLoaded(command.sandbox) for command in of_type(LoadMemory, commands)]
        return self.send(*events, at=at)

    def finish(self, invocation: str, *, run_s: float = 1, at: float | None = None) -> list[Command]:
        """Report that a running invocation has finished, with those that run together with it."""
        sandbox = self.scheduler.invocations[invocation].sandbox
        return self.send(RunFinished(invocation, sandbox.id if sandbox else 0, run_s), at=at)

    def run_all(self, commands: Sequence[Command], *, run_s: float = 1) -> list[Command]:
        """Start, run and finish all invocations that these commands dispatch, and return the commands that follow."""
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
    """Return the commands of one type."""
    return [command for command in commands if isinstance(command, kind)]


def dispatched(commands: Sequence[Command]) -> list[tuple[str, str, str]]:
    """Return invocation, device and kind of start of each dispatch."""
    return [
        (command.invocation, place_text(command.place), str(command.start)) for command in of_type(Dispatch, commands)
    ]
