"""Assignments of sandboxes: the functions that each sandbox serves, its current call and its key for calling back."""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.core.commands import Start
from aliquot.live.catalogue.groups import FlowFunctions
from aliquot.live.catalogue.keys import EphemeralKeys
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, ChainCall
from aliquot.live.node.base import Outcome
from aliquot.live.store.records import is_truthy


class SandboxAssignment:
    """One sandbox from its start to its end: the function revisions that it serves, and the call that it runs."""

    __slots__ = (
        "ahead", "alone", "batches", "call", "early", "functions", "has_view", "init_s", "key", "logs", "riders",
        "runs", "view_lost",
    )  # fmt: skip

    def __init__(self, functions: FlowFunctions, key: str) -> None:
        self.functions = functions
        # The only function of a sandbox without a group. It is read several times per call.
        self.alone = None if functions.is_group else functions.members[0]
        self.key = key  # opens the caller's namespace; empty if no function wants a key
        self.batches = functions.needs().batch > 1  # its function takes lists of items
        self.call: Call | None = None
        self.riders: list[Call] = []  # calls that run, or wait for the start, together with its call
        self.early = False  # it was started ahead of calls, and none has used it yet
        self.runs = False  # its call has begun
        self.ahead: list[Call] = []  # calls handed ahead, in the order in which they will run
        self.has_view = False  # it sees datasets
        self.view_lost = False  # it is stopped when its run ends, because its view is lost
        self.init_s: float | None = None
        self.logs: tuple[str, ...] = ()  # lines of its start, until a record has them

    @property
    def calls(self) -> "list[Call]":
        """Return its call and those that run together with it."""
        return [] if self.call is None else [self.call, *self.riders]

    def serves(self, call: Call) -> bool:
        """Return whether it can run the call. A group's sandbox has the functions that the group had at its start."""
        if self.alone is not None:
            return True
        needed = call.steps if isinstance(call, ChainCall) else (call,)
        return all(self.functions.member(one.function) is not None for one in needed)

    def resolved_for(self, function: str) -> ResolvedAction:
        """Return the revision of the function that this sandbox runs."""
        return self.alone or self.functions.member(function) or self.functions.members[0]

    def key_for(self, resolved: ResolvedAction) -> str:
        """Return the key that the function gets. Some functions of a group may have none."""
        return self.key if self.alone is not None or wants_key(resolved) else ""

    def with_logs(self, outcome: Outcome) -> Outcome:
        """Add the lines that the sandbox printed at its start to the outcome of its first run."""
        if not self.logs:
            return outcome
        logs, self.logs = self.logs, ()
        return replace(outcome, logs=logs + outcome.logs)


def wants_key(resolved: ResolvedAction) -> bool:
    """Return whether the action's code gets a key of its caller's namespace."""
    return is_truthy(resolved.action.annotation("provide-api-key", default=True))


class SandboxAssignments:
    """The assignments of all sandboxes, by the scheduler's number."""

    def __init__(self, keys: EphemeralKeys, on_closed: Callable[[int], None]) -> None:
        """`on_closed` is called with the number of every sandbox that has ended."""
        self._keys = keys
        self._on_closed = on_closed
        self._by_sandbox: dict[int, SandboxAssignment] = {}
        self.get = self._by_sandbox.get
        self.items = self._by_sandbox.items

    def __getitem__(self, sandbox: int) -> SandboxAssignment:
        return self._by_sandbox[sandbox]

    def open(self, sandbox: int, functions: FlowFunctions) -> SandboxAssignment:
        """Assign the functions to a new sandbox, and issue its key."""
        wanted = any(wants_key(resolved) for resolved in functions.members)
        key = self._keys.issue(functions.tenant) if wanted else ""
        assignment = self._by_sandbox[sandbox] = SandboxAssignment(functions, key)
        return assignment

    def close(self, sandbox: int) -> SandboxAssignment | None:
        """Remove the assignment of an ended sandbox, and revoke its key."""
        assignment = self._by_sandbox.pop(sandbox, None)
        if assignment is not None and assignment.key:
            self._keys.forget(assignment.key)
        self._on_closed(sandbox)
        return assignment


def tell_start(call: Call, assignment: SandboxAssignment) -> None:
    """Give a call the duration and the output of the cold start that it waited for."""
    if call.run.start is not Start.COLD:
        call.run.init_s = None
        return
    call.run.init_s = assignment.init_s
    for line in assignment.logs:
        call.printed(line)


def note_hidden_start(call: Call, assignment: SandboxAssignment) -> None:
    """Record how much of its start the first call of a sandbox that was started ahead did not see."""
    assignment.early = False
    if call.run.start is Start.WARM and assignment.init_s is not None:
        call.notes = note("hold", {"hiddenTime": round(assignment.init_s * 1000)}) + call.notes
