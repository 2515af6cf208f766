"""Objects that are not on disk yet: outputs that stay on a device and are written behind the call that made them.

Calls may name them at once. If the executor ends before it has written one, the object is lost, and its key says why.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from aliquot.live.node.output_memory import OutputMemory

log = structlog.get_logger("aliquot.objects")

LOST = "The object {!r} is gone: its executor ended before it was written. It was the output of a call with `stay`."
MAX_LOST = 1000  # keys that are remembered
HANDED_KEPT_S = 60.0  # outputs for the next graph of a sequence, which takes them within milliseconds
MAX_TOKENS = 10_000

Store = Callable[[Callable[[], bool]], Awaitable[str]]  # stores the bytes if it is still wanted; returns their digest


class PendingObject:
    """An output that is being written. `settled` is set when it is on disk, or lost."""

    def __init__(self, memory: OutputMemory) -> None:
        self.memory = memory
        self.settled = asyncio.Event()


class PendingObjects:
    """The objects that are being written, by namespace and key."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], PendingObject] = {}
        self._lost: dict[tuple[str, str], str] = {}
        self._tokens: dict[tuple[str, str], tuple[str, str]] = {}  # digest and token of versions that were written
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, namespace: str, key: str) -> PendingObject | None:
        return self._pending.get((namespace, key))

    def hand_on(self, namespace: str, key: str, memory: OutputMemory) -> None:
        """Keep an output for the next graph of a sequence, which finds it by this key. It is never stored."""
        pending = self._pending[namespace, key] = PendingObject(memory)
        pending.settled.set()  # it never becomes an object
        loop = asyncio.get_running_loop()
        loop.call_later(HANDED_KEPT_S, self._pending.pop, (namespace, key), None)

    def why_lost(self, namespace: str, key: str) -> str | None:
        return self._lost.get((namespace, key))

    def token(self, namespace: str, key: str, digest: str) -> str:
        """Return the token under which a version may still be on a device, or nothing."""
        known, token = self._tokens.get((namespace, key), ("", ""))
        return token if known == digest else ""

    async def settled(self, namespace: str, key: str) -> None:
        """Wait until an object is on disk or lost, if it is being written."""
        if (pending := self.find(namespace, key)) is not None:
            await pending.settled.wait()

    def replaced(self, namespace: str, key: str) -> None:
        """Forget what is known of a key that has been written or deleted otherwise."""
        for known in (self._pending, self._lost, self._tokens):
            known.pop((namespace, key), None)

    def add(self, namespace: str, key: str, memory: OutputMemory, store: Store) -> None:
        """Have an output stored as soon as its executor has written it."""
        self.replaced(namespace, key)
        pending = self._pending[namespace, key] = PendingObject(memory)
        loop = asyncio.get_running_loop()

        def ready() -> None:
            loop.remove_reader(memory.done)
            task = loop.create_task(self._store(namespace, key, pending, store))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.add_reader(memory.done, ready)

    async def _store(self, namespace: str, key: str, pending: PendingObject, store: Store) -> None:
        place = namespace, key
        why = LOST.format(key)
        try:
            if pending.memory.is_written:
                digest = await store(lambda: self._pending.get(place) is pending)
                why = ""
                self._tokens[place] = digest, pending.memory.token
        except Exception as error:  # noqa: BLE001 - a full disk, a full namespace, or a store that fails
            log.warning("an output could not be stored", namespace=namespace, key=key, why=str(error))
            why = f"The object {key!r} could not be stored: {error}"
        if self._pending.get(place) is pending:
            del self._pending[place]
        if why:
            self._lost[place] = why
        for known in (self._lost, self._tokens):
            while len(known) > (MAX_LOST if known is self._lost else MAX_TOKENS):
                known.pop(next(iter(known)))
        pending.settled.set()
