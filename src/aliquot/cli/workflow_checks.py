"""Checks of definitions for `aliquot workflow check`: offline, or with what the platform knows."""

from collections.abc import Iterator, Sequence
from typing import Any

from aliquot.cli.definitions import WorkflowSource
from aliquot.cli.gateway import GatewayClient
from aliquot.workflow.language import Complaint, read_definition
from aliquot.workflow.outline import neighbour_warnings, outline_of

_CHECK = "/api/v1/namespaces/_/workflows/check"


def complaints_of(source: WorkflowSource, gateway: GatewayClient | None) -> list[Complaint]:
    """Return the mistakes and warnings of a definition. Without a gateway they come from its file alone."""
    if gateway is not None:
        found = gateway.send("POST", _CHECK, "the definition", body={"definition": source.definition})
        return [Complaint(**one) for one in found["complaints"]]
    machine, complaints = read_definition(source.definition)
    if machine is None or source.workflow is None:
        return list(complaints)
    return [*complaints, *_app_warnings(source.workflow.app.functions.values(), source.definition)]


def _app_warnings(functions: Any, definition: dict[str, Any]) -> Iterator[Complaint]:  # noqa: ANN401 - of any types
    """Yield warnings about neighbours that could be a group, from the needs in their decorators.

    Whether a device has the memory for all of them is known to the platform alone.
    """
    needs = {one.action: one.needs for one in functions}

    def share_one(resources: Sequence[str]) -> bool:
        groups = {needs[one].group if one in needs else None for one in resources}
        return len(groups) == 1 and None not in groups

    def could_share(resources: Sequence[str]) -> bool:
        found = [needs[one] for one in resources if one in needs]
        if len(found) < len(resources) or len({one.group for one in found if one.group}) > 1:
            return False
        kept = any(one.rerun is not None or (one.batch or 1) > 1 or one.exit for one in found)
        return not kept and sum(one.gpu_share or 0 for one in found) <= 1

    yield from neighbour_warnings(outline_of(definition), share_one, could_share)
