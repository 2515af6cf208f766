"""A dataset's files on their way to the node, while somebody looks on: as events, or as one answer in the end."""

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.datasets.requests import AgentError
from aliquot.live.gateway.http.events import EventStream
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.storage.addresses import redact_for_tenants
from aliquot.storage.messages import WarmProgress
from aliquot.storage.records import Dataset

OPERATOR = ""  # no namespace has that name
MAX_WARMINGS = 4  # of one namespace at a time; the node does four times as many
_MAX_PATTERNS = 1000
_MAX_PATTERN_LENGTH = 4096


class WarmPost(Struct, forbid_unknown_fields=True):
    """Shell patterns over paths within the dataset, such as `train/*.bin`; none: everything."""

    patterns: list[str] = []


class WarmResult(Struct):
    files: int
    bytes: int


class WarmingLimiter:
    """How many are under way for each namespace: nobody takes all that the node can do at once."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()

    def begin(self, who: str) -> Callable[[], None]:
        """What is to be called when it has ended. Raises a `Refusal`."""
        if who != OPERATOR and self._under_way[who] >= MAX_WARMINGS:
            raise Refusal(429, f"{MAX_WARMINGS} datasets are being warmed for {who} already; wait until one is")
        self._under_way[who] += 1

        def end() -> None:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]

        return end


class DatasetWarming:
    def __init__(self, fabric: Fabric, dataset: Dataset, post: WarmPost, ended: Callable[[], None]) -> None:
        """Raises `InputError`. `ended` is called once."""
        patterns = post.patterns
        self._ended = ended
        if len(patterns) > _MAX_PATTERNS or not all(0 < len(pattern) <= _MAX_PATTERN_LENGTH for pattern in patterns):
            ended()
            raise InputError(
                f"patterns: it takes at most {_MAX_PATTERNS} texts of 1 to {_MAX_PATTERN_LENGTH} characters"
            )
        self._fabric = fabric
        self._dataset = dataset
        self._patterns = tuple(patterns)

    async def done(self) -> WarmResult:
        """Raises `AgentError`."""
        try:
            return await self._warm(lambda _: None)
        finally:
            self._ended()

    def events(self, keep_alive_s: float, transaction: str) -> EventStream:
        """`progress` as it goes, then `result`. When nobody listens any more, it stops."""
        events = WarmEventStream(keep_alive_s, transaction)
        events.task = asyncio.get_running_loop().create_task(self._tell(events))
        events.task.add_done_callback(lambda _: self._ended())
        return events

    async def _tell(self, events: "WarmEventStream") -> None:
        try:
            warmed = await self._warm(events.progress)
        except AgentError as error:
            events.fail(str(error))
        else:
            events.warmed(warmed)

    async def _warm(self, told: Callable[[WarmProgress], None]) -> WarmResult:
        try:
            value = await self._fabric.warm(self._dataset.name, self._patterns, told)
        except AgentError as error:
            raise type(error)(redact_for_tenants(str(error), self._dataset)) from None
        return msgspec.convert(value, WarmResult)


class WarmEventStream(EventStream):
    task: asyncio.Task[None]

    def progress(self, progress: WarmProgress) -> None:
        told = {name: getattr(progress, name) for name in ("files", "of_files", "bytes", "of_bytes")}
        self._tell(b"progress", b"", msgspec.json.encode(told))

    def warmed(self, warmed: WarmResult) -> None:
        self._tell(b"result", b"", msgspec.json.encode(warmed))
        self._close()

    def _close(self) -> None:
        super()._close()
        if asyncio.current_task() is not self.task:  # whoever listened has gone, or the server stops
            self.task.cancel()
