"""The book of alarms: in memory and in the store, each tied to the trigger that it was made for.

A write is durable before it shows, but for how often one has fired: the clock counts that here, and notes it down then.
Writes follow one another, so that none undoes what came after it was begun.
"""

import asyncio
from collections.abc import Coroutine

import msgspec

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Delete, Document, DocumentChange, Store
from aliquot.live.store.records import Trigger
from aliquot.live.triggers.alarms.alarm import Alarm
from aliquot.live.triggers.alarms.due_queue import Key

ALARMS = "alarms"


class AlarmTable:
    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self.alarms: dict[Key, Alarm] = {}
        self.writing = asyncio.Lock()
        catalogue.add_namespace_data(self)

    async def load(self) -> None:
        """When the catalogue is there. What the triggers that are gone have left behind goes, too."""
        for document in await self._store.scan(ALARMS):
            alarm = msgspec.json.decode(document.body, type=Alarm)
            if self.trigger_of(alarm) is not None:
                self.alarms[alarm.key] = alarm
            else:
                await self._store.delete(ALARMS, *alarm.key)

    def trigger_of(self, alarm: Alarm) -> Trigger | None:
        """The one that it was made for, not another of the same name."""
        trigger = self._catalogue.entities.one(Trigger, *alarm.key)
        return trigger if trigger is not None and trigger.identity == alarm.identity else None

    def alarm_of(self, trigger: Trigger) -> Alarm | None:
        alarm = self.alarms.get((trigger.namespace, trigger.name))
        return alarm if alarm is not None and alarm.identity == trigger.identity else None

    async def put(self, alarm: Alarm) -> None:
        """Durable on return."""

        async def write() -> None:
            async with self.writing:
                await self._write(alarm)
                self.alarms[alarm.key] = alarm

        await _whole(write())

    async def note(self, alarm: Alarm) -> bool:
        """Write it as it stands here, unless it has been changed or removed meanwhile; whether that was so."""
        async with self.writing:
            if self.alarms.get(alarm.key) is not alarm:
                return False
            await self._write(alarm)
            return True

    async def remove(self, alarm: Alarm) -> None:
        """Durable on return. The alarm of a trigger's namesake stays."""

        async def write() -> None:
            async with self.writing:
                found = self.alarms.get(alarm.key)
                if found is not None and found.identity == alarm.identity:
                    await self._store.delete(ALARMS, *alarm.key)
                    del self.alarms[alarm.key]

        await _whole(write())

    async def _write(self, alarm: Alarm) -> None:
        await self._store.put(ALARMS, Document(*alarm.key, msgspec.json.encode(alarm)))

    # --- a namespace goes, and its alarms with it -------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        return [Delete(ALARMS, *key) for key in self.alarms if key[0] == namespace]

    def forget(self, namespace: str) -> None:
        for key in [key for key in self.alarms if key[0] == namespace]:
            del self.alarms[key]


async def _whole(write: Coroutine[None, None, None]) -> None:
    """A caller that is cancelled between the store and memory would leave them different."""
    await asyncio.shield(write)
