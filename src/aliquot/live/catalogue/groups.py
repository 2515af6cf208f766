"""Functions that share a sandbox: what a group asks for together, and what can be no part of one.

To the core a group is one function, with one flow and the requests of all its members together.
"""

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
from aliquot.live.catalogue.needs import Needs, needs_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.store.records import NODEJS, PYTHON, SEQUENCE

FLOW = "group:"  # before a group's name; no action's name has a colon
# What a start takes, as the policies believe it: a fork from a zygote, or a fresh interpreter.
COLD_S = {NODEJS: 0.1}
FORK_S = 0.02
_PROJECT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


class FlowFunctions(Struct, frozen=True):
    """What the sandboxes of one flow serve: a function, or the functions of a group, each at one revision."""

    tenant: str
    flow: str
    members: tuple[ResolvedAction, ...]

    @staticmethod
    def alone(resolved: ResolvedAction) -> "FlowFunctions":
        return FlowFunctions(resolved.tenant, resolved.function, (resolved,))

    @property
    def is_group(self) -> bool:
        return self.flow.startswith(FLOW)

    def member(self, function: str) -> ResolvedAction | None:
        return next((resolved for resolved in self.members if resolved.function == function), None)

    def having(self, resolved: ResolvedAction) -> "FlowFunctions":
        """The same with this one, in its old place if it had one."""
        others = [resolved if one.function == resolved.function else one for one in self.members]
        return replace(self, members=tuple(others if resolved in others else [*others, resolved]))

    def without(self, function: str) -> "FlowFunctions":
        return replace(self, members=tuple(one for one in self.members if one.function != function))

    def needs(self) -> Needs:
        """Of all together."""
        return united([needs_of(resolved.action) for resolved in self.members])

    def spec(self) -> FunctionSpec:
        """As the core knows it."""
        actions = [resolved.action for resolved in self.members]
        bounds = [action.limits.instances for action in actions if action.limits.instances is not UNSET]
        return replace(
            self.needs().function(self.flow, host_bytes=sum(action.limits.memory for action in actions) * MIB),
            instances=min(bounds, default=None),
            times=Times(cold_s=COLD_S.get(actions[0].exec.kind, FORK_S)),
        )


def flow_of(resolved: ResolvedAction) -> str:
    return FLOW + resolved.group if resolved.group else resolved.function


def united(parts: Sequence[Needs]) -> Needs:
    """What one sandbox needs that serves them all: requests are summed."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        gpu_share=round(sum(part.gpu_share for part in parts), 9),
        gpu_memory_bytes=sum(part.gpu_memory_bytes for part in parts),
        gpu_share_limit=_limit([part for part in parts if part.gpu_share]),
        gpu_memory_limit_bytes=sum(part.memory_limit_bytes for part in parts),
        weight=sum(part.weight for part in parts),
        datasets=_all(part.datasets for part in parts),
        imports=_all(part.imports for part in parts),
        requirements=_all(part.requirements for part in parts),
        sdk=any(part.sdk for part in parts),
    )


def _limit(parts: Sequence[Needs]) -> float | None:
    """One that may have all lets the sandbox have all."""
    limits = [part.gpu_share_limit for part in parts if part.gpu_share_limit is not None]
    if not limits or len(limits) < len(parts):
        return None
    return min(round(sum(limits), 9), max(1, sum(part.gpu_share for part in parts)))


def _all(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))


def check(functions: FlowFunctions, resolved: ResolvedAction) -> None:
    """Whether the one may be of the group with the others. Raises an `InputError`."""
    kind = resolved.action.exec.kind
    if kind == SEQUENCE:
        raise InputError("annotation group: a sequence has no sandbox to share; it goes on the actions it is made of")
    if kind != PYTHON:
        raise InputError(f"annotation group: it takes Python functions ({PYTHON}) alone, not {kind}")
    name = functions.flow.removeprefix(FLOW)
    if (weight := functions.needs().weight) > MAX_WEIGHT:
        raise InputError(
            f"annotation weight: a group has its members' together, which would be {weight:.12g} in group '{name}'; "
            f"it takes at most {MAX_WEIGHT:.12g}"
        )
    mine = {_project(line): line for line in needs_of(resolved.action).requirements}
    for other in functions.members:
        if other.function == resolved.function:
            continue
        for line in needs_of(other.action).requirements:
            wanted = mine.get(_project(line), line)
            if wanted != line:
                raise InputError(
                    f"annotation requirements: the functions of a group share an environment, and in group '{name}' "
                    f"{other.function} has '{line}', not '{wanted}'; say the same in both, or leave the group"
                )


def _project(requirement: str) -> str:
    found = _PROJECT.match(requirement)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else requirement


def complaint_of(functions: FlowFunctions, resolved: ResolvedAction, devices: Sequence[DeviceSpec]) -> str | None:
    """Why this one cannot be deployed, alone or with the others that its sandboxes would serve; None when it can.

    Neither what is asked for nor how far it may go may be more than any device has.
    """
    if needs_of(resolved.action).group:
        try:
            check(functions, resolved)
        except InputError as error:
            return str(error)
    spec, stretched = functions.spec(), _stretched(functions)
    share = spec.share or 0
    if share > 1 and share != int(share):
        why: str | None = f"a share of {share:g} is neither at most 1 nor a whole number of devices"
    elif share > 1 and sum(needs_of(one.action).gpu_share > 0 for one in functions.members) > 1:
        # Its memory is of each device, and theirs would be summed on each.
        why = f"a share of {share:g} is of several devices, for which one member alone may ask"
    else:
        why = misfit(spec, devices)
    others: Callable[[FlowFunctions], FunctionSpec] = FlowFunctions.spec
    if why is None and (too_far := misfit(stretched, devices)) is not None:
        why, others = f"annotation gpu-memory-limit: {too_far}", _stretched
    if why is None or not functions.is_group:
        return why
    names = ", ".join(one.function for one in functions.members)
    rest = functions.without(resolved.function)
    left = _left(others(rest), devices) if rest.members else ""
    return f"group '{functions.flow.removeprefix(FLOW)}' ({names}) asks for its members' requests together: {why}{left}"


def _stretched(functions: FlowFunctions) -> FunctionSpec:
    """As it is when it holds as much as it may."""
    spec = functions.spec()
    return replace(spec, memory_bytes=max(spec.memory_bytes, functions.needs().memory_limit_bytes))


def _left(others: FunctionSpec, devices: Sequence[DeviceSpec]) -> str:
    """The largest that would fit beside the others of a group."""
    usable = [device for device in devices if device.kind != CPU]
    if not usable:
        return ""
    room = [inf if device.memory_bytes is None else device.memory_bytes - others.memory_bytes for device in usable]
    memory = "any memory" if max(room) == inf else f"{max(0, *room):.0f} bytes"
    share = max(0, 1 - (others.share or 0))
    return f"; beside the others of the group the largest that would fit is a share of {share:g} with {memory}"
