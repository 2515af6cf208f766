"""The table of alarms in memory and in the store. Each belongs to one trigger.

A change is durable before it is visible. Only the number of firings is counted in memory first, by the scheduler, and
written afterwards. Writes are made one after another, so that an earlier one cannot overwrite a later one.
"""

import asyncio
from collections.abc import Coroutine

import msgspec

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Delete, Document, DocumentChange, Store
from aliquot.live.store.records import Trigger
from aliquot.live.triggers.alarms.alarm import Alarm, AlarmKey

ALARMS = "alarms"


class AlarmTable:
    """Holds all alarms by namespace and trigger. Implements the catalogue's `NamespaceData`."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self.alarms: dict[AlarmKey, Alarm] = {}
        self.writing = asyncio.Lock()
        catalogue.add_namespace_data(self)

    async def load(self) -> None:
        """Load the alarms, and delete those whose trigger is gone. The catalogue must be loaded before."""
        for document in await self._store.scan(ALARMS):
            alarm = msgspec.json.decode(document.body, type=Alarm)
            if self.trigger_of(alarm) is not None:
                self.alarms[alarm.key] = alarm
            else:
                await self._store.delete(ALARMS, *alarm.key)

    def trigger_of(self, alarm: Alarm) -> Trigger | None:
        """Return the alarm's trigger, unless it is gone or another one has its name."""
        trigger = self._catalogue.entities.one(Trigger, *alarm.key)
        return trigger if trigger is not None and trigger.identity == alarm.identity else None

    def alarm_of(self, trigger: Trigger) -> Alarm | None:
        """Return the trigger's alarm."""
        alarm = self.alarms.get((trigger.namespace, trigger.name))
        return alarm if alarm is not None and alarm.identity == trigger.identity else None

    async def put(self, alarm: Alarm) -> None:
        """Add or replace an alarm. Durable."""

        async def write() -> None:
            async with self.writing:
                await self._write(alarm)
                self.alarms[alarm.key] = alarm

        await _shielded(write())

    async def write_if_current(self, alarm: Alarm) -> bool:
        """Write an alarm that is in the table. Return False if it was changed or removed meanwhile."""
        async with self.writing:
            if self.alarms.get(alarm.key) is not alarm:
                return False
            await self._write(alarm)
            return True

    async def remove(self, alarm: Alarm) -> None:
        """Remove an alarm, unless the alarm of a later trigger has replaced it. Durable."""

        async def write() -> None:
            async with self.writing:
                found = self.alarms.get(alarm.key)
                if found is not None and found.identity == alarm.identity:
                    await self._store.delete(ALARMS, *alarm.key)
                    del self.alarms[alarm.key]

        await _shielded(write())

    async def _write(self, alarm: Alarm) -> None:
        await self._store.put(ALARMS, Document(*alarm.key, msgspec.json.encode(alarm)))

    # --- NamespaceData ----------------------------------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        """Return the changes that delete the namespace's alarms."""
        return [Delete(ALARMS, *key) for key in self.alarms if key[0] == namespace]

    def forget(self, namespace: str) -> None:
        """Remove the namespace's alarms from memory."""
        for key in [key for key in self.alarms if key[0] == namespace]:
            del self.alarms[key]


async def _shielded(write: Coroutine[None, None, None]) -> None:
    """Finish the write even if the caller is cancelled, so that the store and memory stay equal."""
    await asyncio.shield(write)
