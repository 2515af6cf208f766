"""Try kernel graphs out when they are deployed: compile all programs, and run the list of kernels once.

Compiling and running are work for a sandbox: a compiler may crash, and so may a kernel. A trial has a sandbox of its
own on the host's processors, outside of the scheduler. There is one trial at a time.
"""

import asyncio
import json
from itertools import count

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.model import CPU
from aliquot.core.units import MIB
from aliquot.live.catalogue.kernel_graphs import DEFAULT_SHARE, KERNEL_MODULE, GraphNeeds, graph_needs
from aliquot.live.device.nvidia.choice import NVIDIA
from aliquot.live.invocations.launches import GraphFiles
from aliquot.live.node.base import Launch, NestedRun, Node, NodeListener, Outcome, RunRequest, Status
from aliquot.live.node.executors import TRIAL
from aliquot.live.objects.files import folder_name
from aliquot.live.store.records import KERNEL, Action

TRIAL_TIMEOUT_S = 10.0
CODE_TIMEOUT_MS = 10_000
FIRST_NUMBER = 1 << 48  # far above the scheduler's numbers of sandboxes
TOO_LONG = f"longer than {TRIAL_TIMEOUT_S:g} s"


class KernelTrials(NodeListener):
    """Runs trials on the node. It listens to the node, and passes on what is not about a trial."""

    def __init__(self, node: Node, files: GraphFiles) -> None:
        self._node = node
        self._files = files
        self._numbers = count(FIRST_NUMBER)
        self._running: dict[int, asyncio.Future[Outcome]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._listener: NodeListener

    def listening(self, listener: NodeListener) -> NodeListener:
        """Return the listener that the node reports to, which passes on to this one."""
        self._listener = listener
        return self

    async def check(self, action: Action) -> str | None:
        """Try the graph out. Return None if it ran, or that it took too long. Raises an `InputError` if it failed."""
        async with self._one_at_a_time:
            number = next(self._numbers)
            ended = self._running[number] = asyncio.get_running_loop().create_future()
            try:
                self._node.start_sandbox(number, self._files.add_programs(self._launch(action), action))
                outcome = await ended
            finally:
                del self._running[number]
                self._node.stop_sandbox(number)
        if outcome.status is Status.SUCCESS:
            if outcome.pickled and self._files.objects is not None:
                keep = self._files.objects.compiled.keep
                await asyncio.to_thread(keep, folder_name(action.namespace), action.exec.code, outcome.pickled)
            return None
        if outcome.timed_out:
            return TOO_LONG
        text = json.loads(bytes(outcome.result)).get("error", "")
        if outcome.status is Status.INTERNAL_ERROR:
            raise InputError(f"The kernel graph could not be tried out: {text}")
        why = f" ({outcome.failure})" if outcome.failure else ""
        raise InputError(f"The kernel graph does not run: {text}{why}")

    # --- NodeListener -----------------------------------------------------------------------------------

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        if sandbox < FIRST_NUMBER:
            self._listener.sandbox_started(sandbox, init_s, logs)
        elif sandbox in self._running:  # the graph has run; ask for the code that was compiled for it
            self._node.run(sandbox, RunRequest("", b"", pickled=True, env={}, timeout_ms=CODE_TIMEOUT_MS, logs_bytes=0))

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        if not self._ended(sandbox, outcome):
            self._listener.sandbox_lost(sandbox, outcome)

    def sandbox_refused(self, sandbox: int) -> None:
        again = Outcome(Status.INTERNAL_ERROR, b'{"error":"its sandbox was lost; deploy it again"}', 0.0)
        if not self._ended(sandbox, again):
            self._listener.sandbox_refused(sandbox)

    def memory_loaded(self, sandbox: int) -> None:
        self._listener.memory_loaded(sandbox)

    def device_lost(self, device: str, why: str) -> None:
        self._listener.device_lost(device, why)

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        if not self._ended(sandbox, outcome):
            self._listener.run_finished(sandbox, outcome)

    def runs_taken_back(self, sandbox: int, count: int) -> None:
        self._listener.runs_taken_back(sandbox, count)

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        return self._listener.began_inside(sandbox, function)

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None:
        return self._listener.ended_inside(sandbox, outcome)

    def _ended(self, sandbox: int, outcome: Outcome) -> bool:
        """Note the end of a trial, and return whether the sandbox is one of a trial."""
        waiting = self._running.get(sandbox)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
        return sandbox >= FIRST_NUMBER

    def _launch(self, action: Action) -> Launch:
        needs = graph_needs(action)
        made = _launch(action, needs)
        device = next((one.name for one in self._node.devices if one.kind == NVIDIA), None)
        if needs.form != "cuda" or device is None:
            return made
        return replace(made, place=(device,), share=DEFAULT_SHARE, device_bytes=needs.memory_bytes + needs.run_bytes)


def _launch(action: Action, needs: GraphNeeds) -> Launch:
    return Launch(
        tenant=action.namespace,
        function=action.name,
        revision="",
        version=action.version,
        kind=KERNEL,
        code=action.exec.code,
        binary=False,
        main=TRIAL,
        env={},
        timeout_ms=round(TRIAL_TIMEOUT_S * 1000),
        memory_bytes=action.limits.memory * MIB + needs.memory_bytes + needs.run_bytes,
        logs_bytes=MIB,
        place=(CPU,),
        module=KERNEL_MODULE,
    )
