"""Check the definition of a workflow: its text beside the event loop, then its functions against the devices."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from aliquot.core.model import FunctionSpec
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.expressions.messages import CheckedDefinition
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.sequences.payloads import name_from_text
from aliquot.live.invocations.workflows.definitions import MAX_DEFINITION_BYTES, machine_of
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import Action, FullName
from aliquot.workflow.language import Complaint
from aliquot.workflow.language.resources import CALLBACK
from aliquot.workflow.outline import neighbour_warnings, turn_warnings
from aliquot.workflow.stages import UnplannableError, stages_of

Resolve = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`

MAX_SHOWN = 20
LIMIT_ANNOTATIONS = ("latency-slo-ms", "cost-slo")
CALLBACK_IN_EXPRESS = (
    "an execution that is not durable cannot wait for an answer; leave .waitForTaskToken out, or deploy the workflow "
    "with the annotation durable: true"
)


class WorkflowCheck:
    """Checks definitions for the callers of a platform."""

    def __init__(self, platform: Platform, resolve: Resolve) -> None:
        self._platform = platform
        self._resolve = resolve

    async def check_text(self, text: bytes, caller: str) -> list[Complaint]:
        """Return the mistakes and warnings of a definition, as far as it tells by itself and by its functions."""
        checked = await self._check(text, caller)
        complaints = list(checked.complaints)
        if checked.is_valid:
            called = _CalledFunctions(self._platform, self._resolve, caller, checked)
            complaints += called.complaints()
            complaints += await asyncio.to_thread(lambda: list(called.warnings()))  # it grows with the definition
        return complaints

    async def check_action(self, action: Action) -> list[Complaint]:
        """Return the warnings about a workflow, or raise a 400 with all its mistakes."""
        durable = action.annotation("durable")
        if durable is not None and not isinstance(durable, bool):
            raise Refusal(400, f"annotation durable: it takes true or false, not {durable!r}")
        text = action.exec.code.encode()
        complaints = await self.check_text(text, action.namespace)
        mistakes = [str(complaint) for complaint in complaints if not complaint.warning]
        if not mistakes and durable is False:
            names = _callbacks(msgspec.json.decode(text))
            mistakes = [str(Complaint(name, "Resource", CALLBACK_IN_EXPRESS)) for name in names]
        if mistakes:
            more = [f"and {len(mistakes) - MAX_SHOWN} more"] if len(mistakes) > MAX_SHOWN else []
            told = "\n".join(mistakes[:MAX_SHOWN] + more)
            raise Refusal(400, f"The definition of the workflow has mistakes:\n{told}")
        if any(action.annotation(name) is not None for name in LIMIT_ANNOTATIONS):
            complaints += await asyncio.to_thread(lambda: list(_unplannable(text)))
        return complaints[:MAX_SHOWN]

    async def _check(self, text: bytes, caller: str) -> CheckedDefinition:
        if len(text) > MAX_DEFINITION_BYTES:
            reason = f"it has {len(text)} bytes; a definition has at most {MAX_DEFINITION_BYTES}"
            return CheckedDefinition((Complaint("", "definition", reason),))
        return await self._platform.workflows.expressions.check(caller, text)


class _CalledFunctions:
    """The functions that a definition calls, and the complaints about them. Devices may change after their check."""

    def __init__(self, platform: Platform, resolve: Resolve, caller: str, checked: CheckedDefinition) -> None:
        self._platform = platform
        self._checked = checked
        self._found: dict[str, ResolvedAction] = {}
        self._unknown: list[str] = []
        for resource in checked.resources:
            name = name_from_text(resource, caller)
            try:
                if name is not None:
                    self._found[resource] = resolve(caller, name)
            except (NotFoundError, AccessDeniedError):
                self._unknown.append(resource)

    def complaints(self) -> Iterator[Complaint]:
        """Yield the states whose function fits on no device, and warnings about functions that do not exist."""
        yield from self._misfits()
        for resource in self._unknown:
            reason = f"there is no action {resource} yet, or it cannot be read; deploy it before the workflow runs"
            yield Complaint(self._checked.resources[resource][0], "Resource", reason, warning=True)

    def warnings(self) -> Iterator[Complaint]:
        """Yield warnings about neighbours that could be a group, and about branches that take turns."""
        outline, capacity = self._checked.outline, self._platform.capacity
        yield from neighbour_warnings(outline, self._share_one, self._could_share)
        specs: dict[str, FunctionSpec] = {}
        for resource, resolved in self._found.items():
            spec = capacity.spec(resolved) if resolved.has_code and not resolved.composite else None
            if spec is not None and spec.share:
                specs |= dict.fromkeys(self._checked.resources[resource], spec)
        sizes = {state: spec.share or 0 for state, spec in specs.items()}
        yield from turn_warnings(outline, sizes, lambda states: capacity.count_at_once([specs[one] for one in states]))

    def _misfits(self) -> Iterator[Complaint]:
        for resource, resolved in self._found.items():
            why = self._platform.reason_not_deployable(resolved.action) if resolved.has_code else None
            if why is not None:
                for state in self._checked.resources[resource]:
                    yield Complaint(state, "Resource", f"the function {resource} cannot run here: {why}")

    def _share_one(self, resources: Sequence[str]) -> bool:
        groups = {self._found[one].group if one in self._found else "" for one in resources}
        return len(groups) == 1 and "" not in groups

    def _could_share(self, resources: Sequence[str]) -> bool:
        functions = [self._found[one] for one in resources if one in self._found]
        return len(functions) == len(resources) and self._platform.capacity.could_share(functions)


def _unplannable(text: bytes) -> Iterator[Complaint]:
    """Yield a warning if no plan can be made for a workflow with limits."""
    try:
        stages_of(machine_of(text))
    except UnplannableError as error:
        found = error.complaint
        reason = f"{found.reason}; so executions have no promised deadline or cost limit"
        yield found._replace(reason=reason, warning=True)


def _callbacks(machine: dict[str, Any]) -> Iterator[str]:
    """Yield the states of a checked definition that wait for an answer to their token."""
    for name, state in machine["States"].items():
        if str(state.get("Resource", "")).endswith(CALLBACK):
            yield name
        inner = [*state.get("Branches", ()), *(state[key] for key in ("ItemProcessor", "Iterator") if key in state)]
        for branch in inner:
            yield from _callbacks(branch)
