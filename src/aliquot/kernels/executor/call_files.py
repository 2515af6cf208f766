"""The objects of one call, as the executor gets them: files of inputs, and memory for outputs."""

import hashlib
import mmap
import os
from collections.abc import Mapping
from typing import Any

from aliquot.kernels.graph import GraphBuffer, GraphComplaint
from aliquot.kernels.reading import GraphRefused

MAX_VERIFIED = 10_000  # digests that are remembered as checked


class ObjectDamaged(Exception):  # noqa: N818  # the text is for the caller
    """The file of an object is gone or damaged."""


class CallFiles:
    """Descriptors that come with the request of a call. `close` is called when the call has been answered."""

    def __init__(self, about: Mapping[str, Any], fds: list[int], verified: set[str]) -> None:
        """`verified` has the digests of files that were checked before."""
        self._inputs = {key: (digest, fd) for (key, digest), fd in zip(about["inputs"], fds, strict=False)}
        outputs = zip(about["outputs"], fds[len(about["inputs"]) :], strict=True)
        self._outputs = {name: (key, fd) for (name, key), fd in outputs}
        self._verified = verified

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the objects that outputs become, by name."""
        return {name: key for name, (key, _) in self._outputs.items()}

    def read(self, name: str, key: str, buffer: GraphBuffer) -> bytes | memoryview:
        """Return the bytes of an input that is an object. Raises `GraphRefused` or `ObjectDamaged`."""
        if key not in self._inputs:
            raise GraphRefused([GraphComplaint(f"input {name!r}", f"the object {key!r} cannot be named by this call")])
        digest, fd = self._inputs[key]
        size = os.fstat(fd).st_size
        data = memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ)) if size else b""
        if digest not in self._verified:
            if hashlib.sha256(data).hexdigest() != digest:
                raise ObjectDamaged(f"the object {key!r} is damaged or gone from the disk; put it again")
            if len(self._verified) < MAX_VERIFIED:
                self._verified.add(digest)
        if size != buffer.size_bytes:
            reason = (
                f"the object {key!r} has {size} bytes; {buffer.dtype}{list(buffer.shape)} takes {buffer.size_bytes}"
            )
            raise GraphRefused([GraphComplaint(f"input {name!r}", reason)])
        return data

    def write(self, name: str, data: bytes) -> None:
        """Fill the memory of an output."""
        _, fd = self._outputs[name]
        done = 0
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], done)

    def close(self) -> None:
        for _, fd in (*self._inputs.values(), *self._outputs.values()):
            os.close(fd)


NO_FILES = CallFiles({"inputs": [], "outputs": []}, [], set())
