"""Calls that run inside another's run: the steps of a chain, and calls from function to function in one sandbox.

To the core they are one run. Each has its own activation, that begins and ends as the sandbox says.
"""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.core.commands import Start
from aliquot.core.units import MIB
from aliquot.live.datasets.readers import Readers
from aliquot.live.invocations.activations import error, note
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.invocations.launches import activation_env
from aliquot.live.invocations.ledger import Ledger, now_ms
from aliquot.live.invocations.sandbox_assignments import SandboxAssignment
from aliquot.live.node.base import NestedRun, Outcome, Status
from aliquot.live.store.ids import Ids

IN_GROUP = "it runs in the sandbox of its group"
NOT_HERE = "there is no function '{}' in this group"
WAITED = "The sandbox was ended while the action waited for {}, which runs in it too: {}"
DEEPEST = 64
TOO_DEEP = f"functions of a group call each other {DEEPEST} deep at most"
MOST = 1000
TOO_MANY = f"one run may call functions of its group {MOST} times at most: each call has a record; give them more to do"


class NestedCalls:
    def __init__(self, ledger: Ledger, ends: CallFinisher, readers: Readers, now: Callable[[], float]) -> None:
        self._ledger = ledger
        self._ends = ends
        self._readers = readers
        self._now = now  # by the platform's clock
        self._ids = Ids()
        self.count: Callable[[Call], None] = lambda _: None  # told of every call from function to function that ended

    def begin_chain(self, sandbox: int, assignment: SandboxAssignment, carrier: Call) -> Call:
        """Its run begins: the first step does. The step."""
        step = self._first(carrier)
        step.action = assignment.resolved_for(step.function).action
        carrier.within.append(step)
        self._read(sandbox, assignment, step)
        return step

    def _first(self, carrier: Call) -> Call:
        assert carrier.chain  # noqa: S101 - it has not begun
        step = carrier.chain.pop(0)
        step.carrier = carrier
        self._ledger.hold(step)
        for field in ("arrived_s", "begun_s", "init_s", "place", "start", "reason"):
            setattr(step, field, getattr(carrier, field))
        return step

    def call(self, assignment: SandboxAssignment, function: str) -> NestedRun | str:
        """What runs there calls another function of its group: its activation, or why not."""
        outermost = assignment.call
        resolved = assignment.functions.member(function) if assignment.functions.is_group else None
        if resolved is None or outermost is None:
            return NOT_HERE.format(function)
        if len(outermost.within) >= DEEPEST:
            return TOO_DEEP
        if outermost.called_inside >= MOST:
            return TOO_MANY
        outermost.called_inside += 1
        outer = outermost.within[-1] if outermost.within else outermost
        call = Call(
            self._ids(),
            outer.namespace,
            resolved,
            b"{}",
            transaction=outer.transaction,
            cause=outer.id,
            notes=note("calledBy", outer.function),
            session=outer.session,
        )
        return self._begin(assignment, outermost, call)

    def ended(self, sandbox: int, assignment: SandboxAssignment, outcome: Outcome) -> NestedRun | None:
        """The innermost of what runs there has ended; the next step of a chain begins."""
        outermost = assignment.call
        if outermost is None or not outermost.within:
            return None
        inner = outermost.within.pop()
        if outermost.chain is None or outermost.within:
            self._end(inner, outcome)
            self.count(inner)
            return None
        following = outermost.chain.pop(0) if outermost.chain else None
        self._end(inner, assignment.with_logs(outcome))
        if following is None:
            return None
        begun = self._begin(assignment, outermost, following)
        self._read(sandbox, assignment, following)
        return begun

    def _begin(self, assignment: SandboxAssignment, outermost: Call, call: Call) -> NestedRun:
        call.carrier = outermost
        self._ledger.hold(call)
        resolved = assignment.resolved_for(call.function)
        call.action, call.place, call.start, call.reason = resolved.action, outermost.place, Start.WARM, IN_GROUP
        call.begun_s = self._now()
        outermost.within.append(call)
        limits = call.action.limits
        env = activation_env(call, assignment.key_for(resolved), now_ms())
        return NestedRun(call.id, env, limits.timeout, limits.logs * MIB, call)

    def _read(self, sandbox: int, assignment: SandboxAssignment, step: Call) -> None:
        if assignment.reads:
            step.reads = sandbox
            self._readers.begin_run(sandbox, step.namespace.name, step.function, step.id, step.session)

    def finish(self, call: Call, outcome: Outcome) -> Outcome:
        """A run is over, with all that is inside it. What is left for the call itself."""
        if call.chain is not None and not call.within:  # it never began
            call.within.append(self._first(call))
        logs = (outcome.logs, *outcome.outer)
        waiting = ""
        for depth in range(len(call.within)):
            inner = call.within.pop()
            own = replace(outcome, logs=logs[depth] if depth < len(logs) else (), outer=())
            if waiting and outcome.status is not Status.SUCCESS:
                own = replace(own, result=_waited(waiting, outcome), timed_out=False)
            waiting = waiting or inner.function
            self._end(inner, own)
        if waiting and call.chain is None:
            last = logs[-1] if len(logs) > 1 else ()
            return replace(outcome, result=_waited(waiting, outcome), logs=last, outer=(), timed_out=False)
        return outcome

    def _end(self, call: Call, outcome: Outcome) -> None:
        self._ends.end(call, outcome)


def _waited(function: str, outcome: Outcome) -> bytes:
    """For those that waited for it: whose fault it was."""
    told = bytes(outcome.result).decode(errors="replace")
    return error(WAITED.format(function, told.removeprefix('{"error":"').removesuffix('"}')))
