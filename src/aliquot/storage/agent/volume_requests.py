"""Answer the gateway's requests about volumes in threads, because they wait for the disk."""

import errno
from collections.abc import Callable
from concurrent.futures import Executor

import structlog

from aliquot.storage.errors import StorageError
from aliquot.storage.volumes.messages import (
    ListVolume,
    MakeVolumeDirectory,
    ReadVolume,
    RemoveVolume,
    RemoveVolumePath,
    ShowVolumes,
    VolumeReply,
    VolumeRequest,
    WriteVolume,
)
from aliquot.storage.volumes.server import VolumeServer

log = structlog.get_logger("aliquot.volumes")


class VolumeRequests:
    """Performs requests and passes each reply to `send`, which is called from a thread."""

    def __init__(self, volumes: VolumeServer, threads: Executor, send: Callable[[VolumeReply], None]) -> None:
        self._volumes = volumes
        self._threads = threads
        self._send = send

    def handle(self, message: VolumeRequest) -> None:
        self._threads.submit(self._work, message)

    def _work(self, message: VolumeRequest) -> None:
        try:
            reply = self._answer(message)
        except StorageError as error:
            reply = VolumeReply(message.request, error=str(error), code=error.errno)
        except OSError as error:
            path = getattr(message, "path", "")
            text = (error.strerror or str(error)).removeprefix("openat2: ")
            reply = VolumeReply(message.request, error=f"path: '{path}': {text}", code=error.errno or errno.EIO)
        except Exception as error:
            log.exception("a request about a volume could not be answered")
            reply = VolumeReply(message.request, error=f"the storage agent failed: {type(error).__name__}", code=-1)
        self._send(reply)

    def _answer(self, message: VolumeRequest) -> VolumeReply:
        volumes, number = self._volumes, message.request
        match message:
            case RemoveVolume():
                volumes.remove(message.volume)
            case ShowVolumes():
                return VolumeReply(number, used=volumes.used_bytes(message.volumes))
            case ListVolume():
                found = volumes.entries(message.volume, message.path, message.skip, message.limit)
                return VolumeReply(number, entries=tuple(found))
            case ReadVolume():
                part = volumes.read(message.volume, message.path, message.offset, message.size)
                return VolumeReply(number, part=part)
            case WriteVolume():
                upload = message.upload, message.offset
                size = volumes.write(message.volume, message.path, message.data, *upload, last=message.last)
                return VolumeReply(number, count=size)
            case MakeVolumeDirectory():
                volumes.make_directory(message.volume, message.path)
            case RemoveVolumePath():
                removed = volumes.remove_path(message.volume, message.path, recursive=message.recursive)
                return VolumeReply(number, count=removed)
        return VolumeReply(number)
