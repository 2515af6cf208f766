"""After a stop or a crash: what an earlier server had accepted reaches its one end.

What had not begun runs. What had begun ends as interrupted, for it may have had effects that must not come twice,
unless its action is annotated `rerun`.
"""

from collections.abc import Mapping

from aliquot.live.call import Call
from aliquot.live.records import Accepted, Action, Exec, Namespace
from aliquot.live.service import Service
from aliquot.live.store.base import Store

INTERRUPTED = "interrupted: the server stopped while the action ran"
DELETED = "the action was deleted before the call could run"


async def take_up(service: Service, store: Store, namespaces: Mapping[str, Namespace]) -> int:
    """Enqueue or end everything that is unfinished; returns how many there were."""
    unfinished = await store.unfinished()
    for accepted in unfinished:
        namespace = namespaces.get(accepted.namespace, Namespace(accepted.namespace))
        action = service.action(accepted.namespace, accepted.name)
        call = Call(
            accepted.id,
            namespace,
            action or _remains(accepted),
            accepted.payload,
            pickled=accepted.pickled,
            durable=True,
        )
        if action is not None and (accepted.rerun or not accepted.started):
            service.enqueue(call)
            continue
        reason = DELETED if action is None else INTERRUPTED
        await service.end_durably(call, service.end_unbegun(call, reason))
    return len(unfinished)


def _remains(accepted: Accepted) -> Action:
    """What a record needs of an action that is gone."""
    return Action(accepted.namespace, accepted.name, "0.0.0", Exec("unknown"), revision=f"gone {accepted.id}")
