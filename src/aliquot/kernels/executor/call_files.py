"""The objects of one call, as the executor gets them: files or memory of inputs, and memory for outputs."""

import fcntl
import hashlib
import mmap
import os
import select
from collections.abc import Mapping
from typing import Any, NamedTuple

from aliquot.kernels.backends.base import DeviceMemory, KernelBackend, Region
from aliquot.kernels.executor.output_cache import KeptOutput, OutputCache, OutputWriter, write_all
from aliquot.kernels.graph import GraphBuffer, GraphComplaint
from aliquot.kernels.reading import GraphRefused

MAX_VERIFIED = 10_000  # digests that are remembered as checked


class ObjectDamaged(Exception):  # noqa: N818  # the text is for the caller
    """The bytes of an object are gone or damaged."""


class _Input(NamedTuple):
    digest: str  # empty for an output of another call that is not written yet
    token: str  # of its version, if it may be on the device
    fd: int
    done: int | None  # readable when `fd` is written, or never will be


class _Output(NamedTuple):
    key: str
    token: str  # of its version, if it stays on the device
    fd: int
    done: int | None  # to be written to when `fd` is written


class ExecutorOutputs:
    """The outputs that stay on an executor's device, their writer, and the digests that were checked there."""

    def __init__(self) -> None:
        self.cache = OutputCache()
        self.writer = OutputWriter(self.cache)
        self.verified: set[str] = set()


class CallFiles:
    """Descriptors that come with the request of a call. `close` is called when the call has been answered."""

    def __init__(self, about: Mapping[str, Any], fds: list[int], outputs: ExecutorOutputs, form: str) -> None:
        """`about` describes the descriptors, and `form` is that of the graph."""
        left = list(fds)
        self._inputs: dict[str, _Input] = {}
        for key, digest, token in about["inputs"]:
            self._inputs[key] = _Input(digest, token, left.pop(0), None if digest else left.pop(0))
        self._outputs: dict[str, _Output] = {}
        for name, key, token in about["outputs"]:
            self._outputs[name] = _Output(key, token, left.pop(0), left.pop(0) if token else None)
        self._known = outputs
        self._form = form

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the objects that outputs become, by name."""
        return {name: output.key for name, output in self._outputs.items()}

    @property
    def staying(self) -> list[str]:
        """The names of outputs that stay on the device and are written later."""
        return [name for name, output in self._outputs.items() if output.token]

    def read(self, name: str, key: str, buffer: GraphBuffer) -> bytes | memoryview | Region:
        """Return an input that is an object. Raises `GraphRefused` or `ObjectDamaged`."""
        if key not in self._inputs:
            raise GraphRefused(
                [GraphComplaint(f"input {name!r}", f"the object {key!r} is on another node than the device")]
            )
        given = self._inputs[key]
        found = self._known.cache.find(given.token, self._form) if given.token else None
        data: memoryview | Region
        if found is not None:
            data = found
        elif given.done is not None:
            data = _written(key, given.fd, given.done)
        else:
            data = self._file(key, given)
        size = data.size_bytes if isinstance(data, Region) else len(data)
        if size != buffer.size_bytes:
            takes = f"{buffer.dtype}{list(buffer.shape)} takes {buffer.size_bytes}"
            reason = f"the object {key!r} has {size} bytes; {takes}"
            raise GraphRefused([GraphComplaint(f"input {name!r}", reason)])
        return data

    def _file(self, key: str, given: _Input) -> memoryview:
        """Map the file of an object, and check its digest, once for each digest."""
        data = _mapped(given.fd)
        if given.digest not in self._known.verified:
            if hashlib.sha256(data).hexdigest() != given.digest:
                raise ObjectDamaged(f"the object {key!r} is damaged or gone from the disk; put it again")
            if len(self._known.verified) < MAX_VERIFIED:
                self._known.verified.add(given.digest)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Fill the memory of an output."""
        write_all(self._outputs[name].fd, data)

    def keep(self, name: str, backend: KernelBackend, memory: DeviceMemory, size_bytes: int) -> None:
        """Leave an output on the device, and have it written later."""
        output = self._outputs.pop(name)
        kept = KeptOutput(self._form, backend, memory, size_bytes)
        self._known.cache.add(output.token, kept)
        assert output.done is not None  # noqa: S101 - it has a token
        self._known.writer.write(output.token, kept, output.fd, output.done)

    def close(self) -> None:
        given = [(one.fd, one.done) for one in self._inputs.values()]
        for fd, done in (*given, *((one.fd, one.done) for one in self._outputs.values())):
            os.close(fd)
            if done is not None:
                os.close(done)
        self._inputs.clear()
        self._outputs.clear()


def _mapped(fd: int) -> memoryview:
    size = os.fstat(fd).st_size
    return memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else b"")


def _written(key: str, fd: int, done: int) -> memoryview:
    """Wait until another call's output is written. Its executor may end before that."""
    select.select([done], [], [])
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
        raise ObjectDamaged(f"the object {key!r} is gone: its executor ended before it was written")
    return _mapped(fd)


NO_FILES = CallFiles({"inputs": [], "outputs": []}, [], ExecutorOutputs(), "")
