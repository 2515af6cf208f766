"""Warm a dataset: fetch its files to the node, and report the progress as events or as one response at the end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.datasets.agent_requests import AgentError
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.gateway.http.events import EventStream, ResponseLimits
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.storage.addresses import redact_for_tenants
from aliquot.storage.messages import WarmProgress
from aliquot.storage.records import Dataset

OPERATOR = ""  # stands for the operator: no namespace has this name
MAX_WARMINGS = 4  # per namespace at a time; the node can do four times as many
_MAX_PATTERNS = 1000
_MAX_PATTERN_LENGTH = 4096


class WarmPost(Struct, forbid_unknown_fields=True):
    """Shell patterns for paths in the dataset, such as `train/*.bin`. No patterns mean all files."""

    patterns: list[str] = []


class WarmResult(Struct):
    files: int
    bytes: int


class WarmingLimiter:
    """Limits the datasets that are being warmed for one namespace, so that it cannot occupy the whole node."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def begin(self, owner: str) -> Callable[[], None]:
        """Count a warming, and return the function to call when it has ended. Raises a `Refusal`."""
        if owner != OPERATOR and self._running[owner] >= MAX_WARMINGS:
            raise Refusal(429, f"{MAX_WARMINGS} datasets are being warmed for {owner} already; wait until one is")
        self._running[owner] += 1

        def end() -> None:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]

        return end


class DatasetWarming:
    """Warms one dataset for one request."""

    def __init__(self, fabric: Fabric, dataset: Dataset, post: WarmPost, ended: Callable[[], None]) -> None:
        """Check the patterns. Raises `InputError`. `ended` is called once."""
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
        """Warm the dataset, and return when all files are on the node. Raises `AgentError`."""
        try:
            return await self._warm(lambda _: None)
        finally:
            self._ended()

    def events(self, limits: ResponseLimits, owner: str, transaction: str) -> EventStream:
        """Warm the dataset in a task that sends events. It stops when the client disconnects. Raises a 429."""
        try:
            events = WarmEventStream(limits, owner, transaction, self._run)
        except Refusal:
            self._ended()
            raise
        events.task.add_done_callback(lambda _: self._ended())
        return events

    async def _run(self, events: "WarmEventStream") -> None:
        try:
            warmed = await self._warm(events.progress)
        except AgentError as error:
            events.fail(str(error))
        else:
            events.warmed(warmed)

    async def _warm(self, report: Callable[[WarmProgress], None]) -> WarmResult:
        try:
            value = await self._fabric.warm(self._dataset.name, self._patterns, report)
        except AgentError as error:
            raise type(error)(redact_for_tenants(str(error), self._dataset)) from None
        return msgspec.convert(value, WarmResult)


class WarmEventStream(EventStream):
    """A stream with the progress of a warming. Its task is cancelled when the stream closes early."""

    def __init__(
        self,
        limits: ResponseLimits,
        owner: str,
        transaction: str,
        run: Callable[["WarmEventStream"], Coroutine[None, None, None]],
    ) -> None:
        super().__init__(limits, transaction)
        self.open(owner)
        self.task = asyncio.get_running_loop().create_task(run(self))

    def progress(self, progress: WarmProgress) -> None:
        report = {name: getattr(progress, name) for name in ("files", "of_files", "bytes", "of_bytes")}
        self._add(b"progress", b"", msgspec.json.encode(report))

    def warmed(self, warmed: WarmResult) -> None:
        self._add(b"result", b"", msgspec.json.encode(warmed))
        self._close()

    def _close(self) -> None:
        super()._close()
        if asyncio.current_task() is not self.task:  # the client disconnected, or the server is stopping
            self.task.cancel()
