"""Calls that run inside the run of another: steps of a chain, and calls between functions of one group.

The scheduler sees a single run. Each nested call has an activation of its own. The sandbox reports when it
begins and ends.
"""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.commands import Start
from aliquot.core.units import MIB
from aliquot.live.datasets.readers import DatasetReaders
from aliquot.live.invocations.activations import error, note
from aliquot.live.invocations.call import Call, ChainCall, NestedCall
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.invocations.call_registry import CallRegistry
from aliquot.live.invocations.launches import activation_env
from aliquot.live.invocations.sandbox_assignments import SandboxAssignment
from aliquot.live.invocations.trace_context import trace_within
from aliquot.live.node.base import NestedRun, Outcome, Status
from aliquot.live.store.ids import Ids

IN_GROUP = "it runs in the sandbox of its group"
NOT_HERE = "there is no function '{}' in this group"
WAITED = "The sandbox was ended while the action waited for {}, which runs in it too: {}"
MAX_DEPTH = 64
TOO_DEEP = f"functions of a group call each other {MAX_DEPTH} deep at most"
MAX_NESTED_CALLS = 1000
TOO_MANY = (
    f"one run may call functions of its group {MAX_NESTED_CALLS} times at most: "
    "each call has a record; give them more to do"
)


class NestedCalls:
    """Begins and ends the calls inside a run."""

    def __init__(
        self, registry: CallRegistry, finisher: CallFinisher, readers: DatasetReaders, now: Callable[[], float]
    ) -> None:
        self._registry = registry
        self._finisher = finisher
        self._readers = readers
        self._now = now  # the platform's clock
        self._ids = Ids()
        self._count: Callable[[Call], None] = lambda _: None
        self._note: Callable[[str, str, str], None] = lambda *_: None

    def on_ended(self, count: Callable[[Call], None]) -> None:
        """Call `count` with every call between functions that has ended."""
        self._count = count

    def on_called(self, note: Callable[[str, str, str], None]) -> None:
        """Call `note` with the tenant and the flow of every call between functions, and the function that is called."""
        self._note = note

    def begin_chain(self, sandbox: int, assignment: SandboxAssignment, chain: ChainCall) -> None:
        """Begin the first step of a chain whose run begins."""
        step = self._first_step(chain)
        step.action = assignment.resolved_for(step.function).action
        chain.run.nested.append(step)
        self._begin_reading(sandbox, assignment, step)

    def call(self, assignment: SandboxAssignment, function: str) -> NestedRun | str:
        """Begin a call from one function of a group to another, or return why it is refused."""
        outermost = assignment.call
        resolved = assignment.functions.member(function) if assignment.functions.is_group else None
        if resolved is None or outermost is None:
            return NOT_HERE.format(function)
        run = outermost.run
        if len(run.nested) >= MAX_DEPTH:
            return TOO_DEEP
        if run.nested_count >= MAX_NESTED_CALLS:
            return TOO_MANY
        run.nested_count += 1
        self._note(assignment.functions.tenant, assignment.functions.flow, function)
        caller = run.nested[-1] if run.nested else outermost
        call = NestedCall(
            outermost,
            self._ids(),
            resolved,
            b"{}",
            transaction=caller.transaction,
            cause=caller.id,
            notes=note("calledBy", caller.function),
            trace=trace_within(caller),
        )
        return self._begin(assignment, outermost, call)

    def ended(self, sandbox: int, assignment: SandboxAssignment, outcome: Outcome) -> NestedRun | None:
        """End the innermost call of a run. Returns the next step of a chain, which begins now."""
        outermost = assignment.call
        if outermost is None or not outermost.run.nested:
            return None
        inner = outermost.run.nested.pop()
        if not isinstance(outermost, ChainCall) or outermost.run.nested:
            self._finisher.finish(inner, outcome)
            self._count(inner)
            return None
        following = outermost.steps.pop(0) if outermost.steps else None
        self._finisher.finish(inner, assignment.with_logs(outcome))
        if following is None:
            return None
        begun = self._begin(assignment, outermost, following)
        self._begin_reading(sandbox, assignment, following)
        return begun

    def finish(self, call: Call, outcome: Outcome) -> Outcome:
        """End all calls inside a run that has ended. Returns the outcome of the outer call."""
        nested = call.run.nested
        if isinstance(call, ChainCall) and not nested:  # the chain never began
            nested.append(self._first_step(call))
        logs = (outcome.logs, *outcome.outer)
        awaited = ""
        for depth in range(len(nested)):
            inner = nested.pop()
            own = replace(outcome, logs=logs[depth] if depth < len(logs) else (), outer=())
            if awaited and outcome.status is not Status.SUCCESS:
                own = replace(own, result=_ended_while_waiting(awaited, outcome), timed_out=False, failure="")
            awaited = awaited or inner.function
            self._finisher.finish(inner, own)
        if awaited and not isinstance(call, ChainCall):
            last = logs[-1] if len(logs) > 1 else ()
            result = _ended_while_waiting(awaited, outcome)
            return replace(outcome, result=result, logs=last, outer=(), timed_out=False, failure="")
        return outcome

    def _first_step(self, chain: ChainCall) -> NestedCall:
        step = chain.steps.pop(0)
        self._registry.add(step)
        step.run.begin_with(chain.run)
        step.reason = chain.reason
        return step

    def _begin(self, assignment: SandboxAssignment, outermost: Call, call: NestedCall) -> NestedRun:
        self._registry.add(call)
        resolved = assignment.resolved_for(call.function)
        call.action, call.reason = resolved.action, IN_GROUP
        run = call.run
        run.place, run.start, run.begun_s = outermost.run.place, Start.WARM, self._now()
        outermost.run.nested.append(call)
        limits = call.action.limits
        env = activation_env(call, assignment.key_for(resolved), now_ms())
        return NestedRun(call.id, env, limits.timeout, limits.logs * MIB, call)

    def _begin_reading(self, sandbox: int, assignment: SandboxAssignment, step: Call) -> None:
        if assignment.has_view:
            step.run.view_sandbox = sandbox
            self._readers.begin_run(sandbox, step.namespace.name, step.function, step.id, step.session)


def _ended_while_waiting(function: str, outcome: Outcome) -> bytes:
    """Return the result of a call whose sandbox ended while it waited for another function in it."""
    text = bytes(outcome.result).decode(errors="replace")
    return error(WAITED.format(function, text.removeprefix('{"error":"').removesuffix('"}')))
