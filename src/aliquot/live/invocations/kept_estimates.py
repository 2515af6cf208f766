"""Keep the run times that bounds are computed from across restarts, so that a new server does not refuse everybody."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec
import structlog

from aliquot.core.admission.records import SavedTimes
from aliquot.core.events import EstimatesRestored, Event
from aliquot.core.flow import Flow
from aliquot.live.store.base import Document, Put, Store, StoreError

log = structlog.get_logger("aliquot.service")

COLLECTION = "estimate"
SAVE_EVERY_S = 60.0


class KeptTimes(msgspec.Struct, frozen=True):
    """The times of one function. Those of another revision do not count."""

    revision: str
    times: tuple[SavedTimes, ...]


class KeptEstimates:
    """Writes the times of flows with promised calls to the store, and restores them."""

    def __init__(
        self,
        store: Store,
        flows: Mapping[tuple[str, str], Flow],
        revision_of: Callable[[str, str], str | None],
        post: Callable[[Event], None],
    ) -> None:
        """`revision_of` returns the revision of a tenant's function, or None if it has none."""
        self._store = store
        self._flows = flows
        self._revision_of = revision_of
        self._post = post
        self._written: dict[tuple[str, str], bytes] = {}
        self._task: asyncio.Task[None] | None = None

    async def restore(self) -> None:
        """Report the times of functions that have not changed to the scheduler, and save them from time to time."""
        for document in await self._store.scan(COLLECTION):
            kept = msgspec.json.decode(document.body, type=KeptTimes)
            if self._revision_of(document.namespace, document.name) == kept.revision:
                self._written[document.namespace, document.name] = document.body
                self._post(EstimatesRestored(document.namespace, document.name, kept.times))
        self._task = asyncio.create_task(self._save_repeatedly())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self.save()

    async def save(self) -> None:
        """Write the times that have changed. They are only estimates, so a store that fails is no reason to fail."""
        changes = []
        for flow in self._flows.values():
            key = flow.key
            revision = self._revision_of(key.tenant, key.function)
            if flow.outlook is None or revision is None:
                continue
            body = msgspec.json.encode(KeptTimes(revision, flow.outlook.saved()))
            if self._written.get(key) != body:
                self._written[key] = body
                changes.append(Put(COLLECTION, Document(key.tenant, key.function, body)))
        if changes:
            try:
                await self._store.apply(changes)
            except StoreError as error:
                log.warning("the estimates could not be stored", error=str(error))

    async def _save_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            await self.save()
