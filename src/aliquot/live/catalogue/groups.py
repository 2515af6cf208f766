"""Groups of functions that share sandboxes: their combined needs, and the rules for their members.

To the core a group is one function with one flow. Its resource requests are the sums of its members' requests.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from math import inf

from msgspec import UNSET, Struct
from msgspec.structs import replace

from aliquot.config import MAX_WEIGHT
from aliquot.core.errors import InputError
from aliquot.core.fit import misfit
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.core.units import MIB
from aliquot.live.catalogue.needs import ActionNeeds, parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.store.records import KERNEL, NODEJS, PYTHON, SEQUENCE

GROUP_PREFIX = "group:"  # begins the name of a group's flow, because action names have no colon
# The start times that the policies get: a new interpreter, or a fork from a zygote.
COLD_S = {NODEJS: 0.1, KERNEL: 0.5}  # a kernel graph is compiled
FORK_S = 0.02
_PROJECT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


class FlowFunctions(Struct, frozen=True):
    """The functions that the sandboxes of one flow serve: a single one, or the members of a group."""

    tenant: str
    flow: str
    members: tuple[ResolvedAction, ...]

    @staticmethod
    def single(resolved: ResolvedAction) -> "FlowFunctions":
        """Return a function that is in no group."""
        return FlowFunctions(resolved.tenant, resolved.function, (resolved,))

    @property
    def is_group(self) -> bool:
        return self.flow.startswith(GROUP_PREFIX)

    def member(self, function: str) -> ResolvedAction | None:
        return next((resolved for resolved in self.members if resolved.function == function), None)

    def with_member(self, resolved: ResolvedAction) -> "FlowFunctions":
        """Return a copy with this function, in place of its earlier revision if there is one."""
        others = [resolved if one.function == resolved.function else one for one in self.members]
        return replace(self, members=tuple(others if resolved in others else [*others, resolved]))

    def without(self, function: str) -> "FlowFunctions":
        return replace(self, members=tuple(one for one in self.members if one.function != function))

    def needs(self) -> ActionNeeds:
        """Return the combined needs of all members."""
        return combine_needs([parse_needs(resolved.action) for resolved in self.members])

    def spec(self) -> FunctionSpec:
        """Return the function that stands for the whole flow in the core."""
        actions = [resolved.action for resolved in self.members]
        bounds = [action.limits.instances for action in actions if action.limits.instances is not UNSET]
        needs = self.needs()
        if needs.batch > 1 and not needs.gpu_share and not bounds:
            bounds = [os.cpu_count() or 1]  # further runs on the processors would take calls from the batches
        cold_s = COLD_S.get(actions[0].exec.kind, FORK_S)
        host_bytes = sum(action.limits.memory for action in actions) * MIB
        return replace(
            needs.function(self.flow, host_bytes=host_bytes, cold_s=cold_s),
            instances=min(bounds, default=None),
            runs_ahead=self._runs_ahead(),
            needs_head=self._needs_head(),
            times=Times(cold_s=cold_s),
        )

    def _needs_head(self) -> bool:
        """Return whether the functions need files, graphs or each other's activations, which the head alone has."""
        needs = self.needs()
        return self.is_group or bool(needs.datasets or needs.volumes) or self.members[0].action.exec.kind == KERNEL

    def _runs_ahead(self) -> bool:
        """Return whether short calls may be handed to busy sandboxes: it is one plain Python function."""
        needs = self.needs()
        is_python = self.members[0].action.exec.kind.startswith("python:")
        return is_python and not (self.is_group or needs.sdk or needs.datasets or needs.volumes)


def flow_of(resolved: ResolvedAction) -> str:
    return GROUP_PREFIX + resolved.group if resolved.group else resolved.function


def combine_needs(parts: Sequence[ActionNeeds]) -> ActionNeeds:
    """Return the needs of a sandbox that serves all these functions. Resource requests are summed."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        gpu_share=round(sum(part.gpu_share for part in parts), 9),
        gpu_memory_bytes=sum(part.gpu_memory_bytes for part in parts),
        gpu_share_limit=_combined_limit([part for part in parts if part.gpu_share]),
        gpu_memory_limit_bytes=sum(part.memory_limit_bytes for part in parts),
        weight=sum(part.weight for part in parts),
        warm=max(part.warm for part in parts),
        datasets=_distinct(part.datasets for part in parts),
        volumes=_distinct(part.volumes for part in parts),
        imports=_distinct(part.imports for part in parts),
        requirements=_distinct(part.requirements for part in parts),
        sdk=any(part.sdk for part in parts),
    )


def _combined_limit(parts: Sequence[ActionNeeds]) -> float | None:
    """Return the combined share limit. It is None, which means no limit, if one member has no limit."""
    limits = [part.gpu_share_limit for part in parts if part.gpu_share_limit is not None]
    if not limits or len(limits) < len(parts):
        return None
    return min(round(sum(limits), 9), max(1, sum(part.gpu_share for part in parts)))


def _distinct(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))


def check_member(functions: FlowFunctions, resolved: ResolvedAction) -> None:
    """Check that a function may be a member of this group. Raises an `InputError`."""
    kind = resolved.action.exec.kind
    if kind == SEQUENCE:
        raise InputError("annotation group: a sequence has no sandbox to share; it goes on the actions it is made of")
    if kind != PYTHON:
        raise InputError(f"annotation group: it takes Python functions ({PYTHON}) alone, not {kind}")
    name = functions.flow.removeprefix(GROUP_PREFIX)
    if (weight := functions.needs().weight) > MAX_WEIGHT:
        raise InputError(
            f"annotation weight: a group has its members' together, which would be {weight:.12g} in group '{name}'; "
            f"it takes at most {MAX_WEIGHT:.12g}"
        )
    mine = {_project(line): line for line in parse_needs(resolved.action).requirements}
    for other in functions.members:
        if other.function == resolved.function:
            continue
        for line in parse_needs(other.action).requirements:
            wanted = mine.get(_project(line), line)
            if wanted != line:
                raise InputError(
                    f"annotation requirements: the functions of a group share an environment, and in group '{name}' "
                    f"{other.function} has '{line}', not '{wanted}'; say the same in both, or leave the group"
                )


def _project(requirement: str) -> str:
    found = _PROJECT.match(requirement)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else requirement


def reason_not_deployable(
    functions: FlowFunctions, resolved: ResolvedAction, devices: Sequence[DeviceSpec], max_sandbox_bytes: int
) -> str | None:
    """Return why a function cannot be deployed in this flow, or None if it can.

    The combined requests and the combined memory limits of the flow must fit on a device. Its limits of host memory
    together may be `max_sandbox_bytes`.
    """
    if parse_needs(resolved.action).group:
        try:
            check_member(functions, resolved)
        except InputError as error:
            return str(error)
    if (too_large := _too_large(functions, resolved, max_sandbox_bytes)) is not None:
        return too_large
    why = _misfit(functions, devices)
    others: Callable[[FlowFunctions], FunctionSpec] = FlowFunctions.spec
    if why is None and (too_far := misfit(_spec_at_limits(functions), devices)) is not None:
        why, others = f"annotation gpu-memory-limit: {too_far}", _spec_at_limits
    if why is None or not functions.is_group:
        return why
    names = ", ".join(one.function for one in functions.members)
    rest = functions.without(resolved.function)
    left = _largest_fit(others(rest), devices) if rest.members else ""
    name = functions.flow.removeprefix(GROUP_PREFIX)
    return f"group '{name}' ({names}) asks for its members' requests together: {why}{left}"


def _misfit(functions: FlowFunctions, devices: Sequence[DeviceSpec]) -> str | None:
    """Return why no device holds the combined requests, or None if one does."""
    spec = functions.spec()
    share = spec.share or 0
    if share > 1 and share != int(share):
        return f"a share of {share:g} is neither at most 1 nor a whole number of devices"
    if share > 1 and sum(parse_needs(one.action).gpu_share > 0 for one in functions.members) > 1:
        # Its memory request counts on each device, so the other members' memory would be added on each.
        return f"a share of {share:g} is of several devices, for which one member alone may ask"
    return misfit(spec, devices)


def could_be_group(functions: FlowFunctions, devices: Sequence[DeviceSpec], max_sandbox_bytes: int) -> bool:
    """Return whether these functions could be one group without giving up anything, such as their batches."""
    for one in functions.members:
        try:
            check_member(functions, one)
        except InputError:
            return False
        needs = parse_needs(one.action)
        if one.tenant != one.action.namespace or needs.batch > 1 or needs.exit:
            return False
    if _too_large(functions, functions.members[0], max_sandbox_bytes) is not None:
        return False
    return _misfit(functions, devices) is None and misfit(_spec_at_limits(functions), devices) is None


def _too_large(functions: FlowFunctions, resolved: ResolvedAction, max_bytes: int) -> str | None:
    """Return why the memory limits of the flow exceed the machine's memory, or None if they do not."""
    others = sum(one.action.limits.memory for one in functions.without(resolved.function).members)
    memory, room = resolved.action.limits.memory, max_bytes // MIB - others
    if memory <= room:
        return None
    beside = f" beside the {others} MB of the other functions in its group" if others else ""
    return f"limits.memory: {memory} MB is more than this machine has{beside}; it takes at most {max(0, room)} MB"


def _spec_at_limits(functions: FlowFunctions) -> FunctionSpec:
    """Return the flow's function with as much device memory as its limit allows."""
    spec = functions.spec()
    return replace(spec, memory_bytes=max(spec.memory_bytes, functions.needs().memory_limit_bytes))


def _largest_fit(others: FunctionSpec, devices: Sequence[DeviceSpec]) -> str:
    """Describe the largest request that fits beside the other members of a group."""
    usable = [device for device in devices if device.kind != CPU]
    if not usable:
        return ""
    room = [inf if device.memory_bytes is None else device.memory_bytes - others.memory_bytes for device in usable]
    memory = "any memory" if max(room) == inf else f"{max(0, *room):.0f} bytes"
    share = max(0, 1 - (others.share or 0))
    return f"; beside the others of the group the largest that would fit is a share of {share:g} with {memory}"
