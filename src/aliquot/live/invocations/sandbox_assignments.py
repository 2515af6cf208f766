"""The sandboxes as the service knows them: what each serves, whose call it has, and the key it may call back with."""

from typing import Protocol

from msgspec.structs import replace

from aliquot.live.catalogue.groups import FlowFunctions
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call, ChainCall
from aliquot.live.node.base import Outcome
from aliquot.live.store.records import is_truthy


class KeyIssuer(Protocol):
    """Who makes keys: the catalogue."""

    def ephemeral_key(self, name: str) -> str: ...
    def forget_key(self, text: str) -> None: ...


class SandboxAssignment:
    """One sandbox: the revisions it serves, from its start to its end."""

    __slots__ = ("alone", "blind", "call", "functions", "init_s", "key", "logs", "reads")

    def __init__(self, functions: FlowFunctions, key: str) -> None:
        self.functions = functions
        # The one function, of what is no group: looked at several times a call.
        self.alone = None if functions.is_group else functions.members[0]
        self.key = key  # of the caller's namespace, for what runs here; empty: its owner wants none
        self.call: Call | None = None
        self.reads = False  # it has a view of datasets
        self.blind = False  # and has lost it: it goes when its run ends
        self.init_s: float | None = None
        self.logs: tuple[str, ...] = ()  # of its start, until a record has them

    def serves(self, call: Call) -> bool:
        """Whether it can run all of it: a sandbox of a group has the functions that the group had when it started."""
        if self.alone is not None:
            return True
        needed = call.steps if isinstance(call, ChainCall) else (call,)
        return all(self.functions.member(one.function) is not None for one in needed)

    def resolved_for(self, function: str) -> ResolvedAction:
        return self.alone or self.functions.member(function) or self.functions.members[0]

    def key_for(self, resolved: ResolvedAction) -> str:
        """Of a group, some may have no key."""
        return self.key if self.alone is not None or wants_key(resolved) else ""

    def with_logs(self, outcome: Outcome) -> Outcome:
        """What a sandbox printed when it started belongs to the record of its first run."""
        if not self.logs:
            return outcome
        logs, self.logs = self.logs, ()
        return replace(outcome, logs=logs + outcome.logs)


def wants_key(resolved: ResolvedAction) -> bool:
    return is_truthy(resolved.action.annotation("provide-api-key", default=True))


class SandboxAssignments:
    def __init__(self) -> None:
        self.keys: KeyIssuer | None = None  # set before the first sandbox: whoever makes them is made later
        self._by_sandbox: dict[int, SandboxAssignment] = {}
        self.get = self._by_sandbox.get
        self.items = self._by_sandbox.items

    def __getitem__(self, sandbox: int) -> SandboxAssignment:
        return self._by_sandbox[sandbox]

    def open(self, sandbox: int, functions: FlowFunctions) -> SandboxAssignment:
        wanted = any(wants_key(resolved) for resolved in functions.members)
        key = self.keys.ephemeral_key(functions.tenant) if wanted and self.keys is not None else ""
        assignment = self._by_sandbox[sandbox] = SandboxAssignment(functions, key)
        return assignment

    def close(self, sandbox: int) -> SandboxAssignment | None:
        """It is gone, and its key opens nothing any more."""
        assignment = self._by_sandbox.pop(sandbox, None)
        if assignment is not None and assignment.key and self.keys is not None:
            self.keys.forget_key(assignment.key)
        return assignment
