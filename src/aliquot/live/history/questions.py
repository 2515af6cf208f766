"""Answer questions about the history of calls, in a process beside the server for each question."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.live.history.reading import HistoryMissingError
from aliquot.live.history.records import CallTimeline
from aliquot.live.store.base import Store, StoreError

MAX_WAITING = 16
MAX_WAITING_PER_TENANT = 2
TIMEOUT_S = 120.0
_MODULE = "aliquot.live.history.process"


class HistoryBusyError(Exception):
    """Too many questions wait. The text says what to do."""


class HistoryQuestions:
    """Reads timelines one at a time, so that questions take at most one processor from calls."""

    def __init__(self, store: Store, data: Path | None) -> None:
        """Without a data folder there is no journal to read."""
        self._store = store
        self._data = data
        self._turn = asyncio.Lock()
        self._waiting: dict[str, int] = {}  # questions by tenant, with the one that is answered

    async def timeline(self, invocation: str, near_ms: int, tenant: str) -> CallTimeline:
        """Return the timeline of a call that arrived at about `near_ms`.

        Raises `HistoryMissingError` if the journal does not have it, and `HistoryBusyError`.
        """
        if self._data is None:
            raise HistoryMissingError("this server keeps no journal")
        count = self._waiting.get(tenant, 0)
        if count >= MAX_WAITING_PER_TENANT or sum(self._waiting.values()) >= MAX_WAITING:
            raise HistoryBusyError(f"{count} questions of {tenant} are being answered; ask again when they are")
        self._waiting[tenant] = count + 1
        try:
            async with self._turn:
                with suppress(StoreError):  # a full disk, from which all that is there can be read
                    await self._store.flush()  # so that the last steps are on disk
                return await self._ask(self._data, invocation, near_ms)
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    async def _ask(self, data: Path, invocation: str, near_ms: int) -> CallTimeline:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, str(data), invocation, str(near_ms),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, _ = await process.communicate()
        except TimeoutError as error:
            raise HistoryMissingError(f"its part of the journal could not be replayed in {TIMEOUT_S:g} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return _read_answer(out)


def _read_answer(out: bytes) -> CallTimeline:
    try:
        return msgspec.json.decode(out, type=CallTimeline)
    except msgspec.DecodeError as error:
        reason = "its part of the journal could not be replayed"
        with suppress(msgspec.DecodeError, KeyError):
            reason = msgspec.json.decode(out, type=dict[str, str])["error"]
        raise HistoryMissingError(reason) from error
