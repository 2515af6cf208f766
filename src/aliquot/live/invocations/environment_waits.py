"""Hold calls outside of the scheduler until the environment of their function is built.

A call that waited in a slot for an installation would keep others from running. So the scheduler learns of a call only
when its sandbox can be started. A build that fails ends the calls that wait for it.
"""

from collections.abc import Callable

from aliquot.live.invocations.call import Call
from aliquot.live.node.base import Node, Outcome

Requirements = tuple[str, ...]


class EnvironmentWaits:
    """The calls that wait for an environment, and the requirements of each flow."""

    def __init__(self, node: Node, arrive: Callable[[Call], None], fail: Callable[[Call, str, Outcome | None], None]):
        """`arrive` is called again when a call has nothing to wait for, `fail` with a call that cannot run."""
        self._node = node
        self._arrive = arrive
        self._fail = fail
        self._requirements: dict[tuple[str, str], Requirements] = {}  # of flows that have any, by tenant and flow
        self._waiting: dict[tuple[str, Requirements], dict[str, Call]] = {}  # by tenant and requirements
        self._waits_for: dict[str, tuple[str, Requirements]] = {}  # by call

    def __contains__(self, call: str) -> bool:
        return call in self._waits_for

    def set_requirements(self, tenant: str, flow: str, requirements: Requirements) -> None:
        """Set what the sandboxes of a flow need. A flow without requirements waits for nothing."""
        if requirements:
            self._requirements[tenant, flow] = requirements
        else:
            self._requirements.pop((tenant, flow), None)

    def hold(self, call: Call, tenant: str, flow: str) -> bool:
        """Hold a call until its environment is built. Returns False if it need not wait."""
        requirements = self._requirements.get((tenant, flow))
        if requirements is None or self._node.has_environment(requirements):
            return False
        key = tenant, requirements
        self._waits_for[call.id] = key
        others = self._waiting.setdefault(key, {})
        others[call.id] = call
        if len(others) == 1:
            self._node.build_environment(requirements, tenant, lambda failure: self._built(key, failure))
        return True

    def _built(self, key: tuple[str, Requirements], failure: Outcome | None) -> None:
        for call in self._take(key):
            if failure is None:
                self._arrive(call)
            else:
                self._fail(call, "its environment could not be built", failure)

    def withdraw(self, call: Call, reason: str) -> bool:
        """End the wait of a call that was cancelled. Returns False if it does not wait here."""
        key = self._waits_for.pop(call.id, None)
        if key is None:
            return False
        del self._waiting[key][call.id]
        self._fail(call, reason, None)
        return True

    def reconsider(self, tenant: str, is_deployed: Callable[[str], bool], removed: str) -> None:
        """Look again at a tenant's calls after a deployment: their functions may be gone, or need something else."""
        for key in [key for key in self._waiting if key[0] == tenant]:
            for call in self._take(key):
                if is_deployed(call.function):
                    self._arrive(call)
                else:
                    self._fail(call, removed, None)

    def _take(self, key: tuple[str, Requirements]) -> list[Call]:
        calls = list(self._waiting.pop(key, {}).values())
        for call in calls:
            del self._waits_for[call.id]
        return calls
