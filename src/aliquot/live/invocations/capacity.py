"""Questions about several functions and the devices at once, for the warnings of a workflow's check."""

from collections.abc import Callable, Sequence

from aliquot.core.fit import count_at_once
from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.live.catalogue.groups import GROUP_PREFIX, FlowFunctions, could_be_group
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.flows import Flows


class Capacity:
    """Answers what the devices of the node could hold, if nothing else ran there."""

    def __init__(self, flows: Flows, devices: Callable[[], Sequence[DeviceSpec]], max_sandbox_bytes: int) -> None:
        self._flows = flows
        self._devices = devices
        self._max_sandbox_bytes = max_sandbox_bytes

    def spec(self, resolved: ResolvedAction) -> FunctionSpec:
        """Return the function that its sandboxes run: the whole group if it is in one."""
        return self._flows.with_new(resolved).spec()

    def count_at_once(self, functions: Sequence[FunctionSpec]) -> int:
        """Return how many of these functions run at once."""
        return count_at_once(functions, self._devices())

    def could_share(self, functions: Sequence[ResolvedAction]) -> bool:
        """Return whether these functions could be one group, with the members of the group that some are in already."""
        groups = {one.group for one in functions if one.group}
        if len(groups) > 1 or any(one.composite or not one.has_code or one.binding is not None for one in functions):
            return False
        if any(reruns_of(one.action) is not None for one in functions):
            return False  # a chain runs again as a whole
        members = FlowFunctions(functions[0].tenant, GROUP_PREFIX, ())
        for one in functions:
            joined = self._flows.with_new(one).members if one.group else (one,)
            for member in joined:
                members = members.with_member(member)
        return could_be_group(members, self._devices(), self._max_sandbox_bytes)
