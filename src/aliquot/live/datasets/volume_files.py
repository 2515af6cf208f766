"""Requests about the files of volumes, which the storage agent performs."""

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aliquot.live.datasets.agent_requests import AgentError
from aliquot.storage.messages import ToAgent
from aliquot.storage.volumes.messages import (
    ListVolume,
    MakeVolumeDirectory,
    ReadVolume,
    RemoveVolumePath,
    ShowVolumes,
    VolumeReply,
    WriteVolume,
)
from aliquot.storage.volumes.records import VolumeEntry, VolumePart

_STATUSES = {  # of HTTP, by errno
    errno.ENOENT: 404,
    errno.EDQUOT: 413,
    errno.ENOSPC: 503,
    errno.EIO: 503,
    -1: 500,
}


class VolumeFileError(AgentError):
    """A request about a file of a volume failed. The text is for users, and the status is one of HTTP."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.status = _STATUSES.get(code, 400)


class VolumeFilesClient:
    """Sends requests about files to the agent. Methods raise `VolumeFileError`, and `AgentLostError` if it ends."""

    def __init__(self, ask: Callable[[Callable[[int], ToAgent]], Awaitable[Any]]) -> None:
        self._send = ask

    async def used_bytes(self, volumes: Sequence[str]) -> dict[str, int]:
        """Return the bytes that volumes use, by id."""
        return (await self._ask(lambda number: ShowVolumes(number, tuple(volumes)))).used

    async def entries(self, volume: str, path: str, skip: int, limit: int) -> tuple[VolumeEntry, ...]:
        """Return the entries of a directory."""
        return (await self._ask(lambda number: ListVolume(number, volume, path, skip, limit))).entries

    async def read(self, volume: str, path: str, offset: int, size: int) -> VolumePart:
        """Return a part of a file."""
        part = (await self._ask(lambda number: ReadVolume(number, volume, path, offset, size))).part
        assert part is not None  # noqa: S101 - the agent's answer without an error has it
        return part

    async def write(self, volume: str, path: str, data: bytes, upload: str, offset: int, *, last: bool) -> int:
        """Write a part of a file that is uploaded. Return its size so far."""
        return (await self._ask(lambda number: WriteVolume(number, volume, path, data, upload, offset, last))).count

    async def make_directory(self, volume: str, path: str) -> None:
        await self._ask(lambda number: MakeVolumeDirectory(number, volume, path))

    async def remove(self, volume: str, path: str, *, recursive: bool) -> int:
        """Remove a file or a directory. Return the number of names that are gone."""
        return (await self._ask(lambda number: RemoveVolumePath(number, volume, path, recursive))).count

    async def _ask(self, make: Callable[[int], ToAgent]) -> VolumeReply:
        reply: VolumeReply = await self._send(make)
        if reply.error:
            raise VolumeFileError(reply.error, reply.code)
        return reply
