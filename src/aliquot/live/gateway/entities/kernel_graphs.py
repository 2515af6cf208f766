"""Try a kernel graph out when it is deployed, and answer calls that do not fit their graph."""

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.catalogue.kernel_graphs import graph_needs
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.store.records import Action, Pair

TRIAL = "trial"  # annotation with what came of a trial that did not end


def check_constants(action: Action, objects: ObjectRegistry | None) -> None:
    """Raise a 400 if a constant of the graph is not stored in its namespace, or has another size."""
    missing = []
    for digest, size_bytes in graph_needs(action).constants.items():
        found = None if objects is None else objects.blob_size(action.namespace, digest)
        if found is None:
            missing.append(f"the constant {digest} of {size_bytes} bytes is not stored; put it under blobs/{digest}")
        elif found != size_bytes:
            missing.append(f"the constant {digest} has {found} bytes; the graph says {size_bytes}")
    if missing:
        raise Refusal(400, "The kernel graph cannot be deployed:\n" + "\n".join(missing))


async def try_out(action: Action, old: Action | None, trials: KernelTrials | None) -> Action:
    """Return the action after a trial of its graph, which is left out if the code is the same. Raises a 400."""
    if trials is None or (old is not None and old.exec == action.exec):
        return action
    try:
        note = await trials.check(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    annotations = [pair for pair in action.annotations if pair.key != TRIAL]
    annotations += [] if note is None else [Pair(TRIAL, note)]
    return replace(action, annotations=tuple(annotations))
