"""The node agent: performs the head's commands on this machine's node, and reports what comes of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from msgspec.structs import replace

from aliquot.cluster import messages
from aliquot.cluster.agent.code_store import CodeStore
from aliquot.cluster.agent.run_output import AgentPartOutput, AgentRunOutput
from aliquot.cluster.messages import (
    Code,
    CodeWanted,
    Command,
    DeviceGone,
    Finished,
    Loaded,
    Part,
    Printed,
    Report,
    RunCommand,
    SandboxGone,
    Start,
    Started,
    StartRefused,
    Usage,
)
from aliquot.cluster.translation import MAX_BODY_BYTES, TOO_LARGE, ended, run_request, size_of
from aliquot.live.node.base import Launch, NestedRun, NodeListener, Outcome, Status
from aliquot.live.node.local import LocalNode
from aliquot.live.node.shared_buffers import SharedBufferError
from aliquot.live.node.states import error
from aliquot.live.store.records import PYTHON

log = structlog.get_logger("aliquot.node_agent")

OUTPUT_INTERVAL_S = 0.1
USAGE_INTERVAL_S = 1.0
NO_GROUP = "a group's functions call each other on the head alone"


class NodeAgent(NodeListener):
    """Everything runs on the event loop. `leave` is called when the head lets the agent go."""

    def __init__(
        self,
        node: LocalNode,
        codes: CodeStore,
        report: Callable[[Report], None],
        tell_usage: Callable[[Usage], None],
        leave: Callable[[], None],
    ) -> None:
        self._node = node
        self._codes = codes
        self._report = report
        self._tell_usage = tell_usage
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, Start] = {}  # starts whose code has not come yet
        self._building: set[int] = set()  # starts whose environment is not built yet
        self._tenants: dict[int, str] = {}  # of sandboxes that were started and have not ended
        self._runs: dict[int, AgentRunOutput] = {}
        self._flush: asyncio.TimerHandle | None = None
        self._usage = self._loop.call_later(USAGE_INTERVAL_S, self._measure)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Start: self._start,
            Code: self._code,
            RunCommand: self._run,
            messages.Stop: self._stop,
            messages.SetSliceCommand: lambda c: node.set_slice(c.sandbox, c.share, c.ceiling),
            messages.SetWeight: lambda c: node.set_weight(c.tenant, c.weight),
            messages.Unload: lambda c: node.unload(c.sandbox),
            messages.Load: lambda c: node.load(c.sandbox),
            messages.PartTaken: self._part_taken,
            messages.Leave: lambda _: leave(),
        }

    def handle(self, command: Command) -> None:
        """Perform a command. A failure is the command's own."""
        try:
            self._handlers[type(command)](command)
        except Exception:  # one failing command must not end the others' sandboxes
            log.exception("a command could not be performed", command=type(command).__name__)

    def stop(self) -> None:
        """Stop all timers."""
        self._usage.cancel()
        if self._flush is not None:
            self._flush.cancel()

    # --- starts -----------------------------------------------------------------------------------------

    def _start(self, start: Start) -> None:
        self._tenants[start.sandbox] = start.launch.tenant
        for digest in dict.fromkeys((start.code, *start.members)):
            if digest and self._codes.get(digest) is None:
                self._waiting[start.sandbox] = start
                self._report(CodeWanted(start.sandbox, digest))
        if start.sandbox not in self._waiting:
            self._begin(start)

    def _code(self, code: Code) -> None:
        self._codes.add(code.digest, code.body)
        for number, start in list(self._waiting.items()):
            needed = [digest for digest in (start.code, *start.members) if digest]
            if code.digest in needed and all(self._codes.get(digest) is not None for digest in needed):
                del self._waiting[number]
                self._begin(start)
            elif code.digest in needed and self._codes.get(code.digest) is None:
                del self._waiting[number]
                self._fail(number, "The code could not be stored on the node: its disk may be full.")

    def _begin(self, start: Start) -> None:
        """Start a sandbox whose code is here, once its environment is."""
        launch = replace(
            start.launch,
            code=self._text(start.code),
            members=tuple(
                replace(member, code=self._text(digest))
                for member, digest in zip(start.launch.members, start.members, strict=True)
            ),
        )
        if launch.kind == PYTHON and launch.requirements and not self._node.has_environment(launch.requirements):
            self._building.add(start.sandbox)
            self._node.build_environment(
                launch.requirements, launch.tenant, lambda failure: self._built(start.sandbox, launch, failure)
            )
        else:
            self._node.start_sandbox(start.sandbox, launch)

    def _built(self, number: int, launch: Launch, failure: Outcome | None) -> None:
        if number not in self._building:
            return  # it was stopped meanwhile
        self._building.discard(number)
        if failure is None:
            self._node.start_sandbox(number, launch)
        else:
            self.sandbox_lost(number, failure)

    def _text(self, digest: str) -> str:
        return (self._codes.get(digest) or "") if digest else ""

    def _fail(self, number: int, text: str) -> None:
        self.sandbox_lost(number, Outcome(Status.INTERNAL_ERROR, error(text), 0.0))

    def _stop(self, command: messages.Stop) -> None:
        number = command.sandbox
        self._forget(number)
        if self._waiting.pop(number, None) is None and number not in self._building:
            self._node.stop_sandbox(number)
        self._building.discard(number)

    def _forget(self, number: int) -> None:
        self._tenants.pop(number, None)
        self._runs.pop(number, None)

    # --- runs -------------------------------------------------------------------------------------------

    def _run(self, command: RunCommand) -> None:
        number = command.sandbox
        tenant = self._tenants.get(number)
        if tenant is None:
            return  # its loss is on its way to the head
        if command.takes_parts:
            output: AgentRunOutput = AgentPartOutput(self._has_output, lambda data: self._report(Part(number, data)))
        else:
            output = AgentRunOutput(self._has_output)
        try:
            request = run_request(command, output, lambda content: self._node.buffers.filled(tenant, content))
        except SharedBufferError as why:
            text = f"The arguments could not be received by the node: {why}."
            self._report(Finished(number, ended(Outcome(Status.APPLICATION_ERROR, error(text), 0.0))))
            return
        self._runs[number] = output
        self._node.run(number, request)

    def _part_taken(self, command: messages.PartTaken) -> None:
        output = self._runs.get(command.sandbox)
        if isinstance(output, AgentPartOutput):
            output.part_taken(goes_on=command.goes_on)

    def _has_output(self) -> None:
        if self._flush is None:
            self._flush = self._loop.call_later(OUTPUT_INTERVAL_S, self._send_output)

    def _send_output(self) -> None:
        self._flush = None
        for number, output in self._runs.items():
            if lines := output.take():
                self._report(Printed(number, lines))

    def _measure(self) -> None:
        self._usage = self._loop.call_later(USAGE_INTERVAL_S, self._measure)
        if self._tenants:
            self._tell_usage(Usage(self._node.usage(), self._node.device_usage()))

    # --- NodeListener -----------------------------------------------------------------------------------

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        self._report(Started(sandbox, init_s, logs))

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        self._forget(sandbox)
        self._report(SandboxGone(sandbox, ended(outcome)))

    def sandbox_refused(self, sandbox: int) -> None:
        self._forget(sandbox)
        self._report(StartRefused(sandbox))

    def memory_loaded(self, sandbox: int) -> None:
        self._report(Loaded(sandbox))

    def device_lost(self, device: str, why: str) -> None:
        self._report(DeviceGone(device, why))

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        self._runs.pop(sandbox, None)
        if size_of(outcome) > MAX_BODY_BYTES:
            outcome = Outcome(
                Status.APPLICATION_ERROR, error(f"The result has {TOO_LARGE}."), outcome.run_s, outcome.logs
            )
        self._report(Finished(sandbox, ended(outcome)))

    def runs_taken_back(self, sandbox: int, count: int) -> None:
        log.error("runs were taken back that were not handed ahead", sandbox=sandbox, runs=count)

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        return NO_GROUP

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None: ...
