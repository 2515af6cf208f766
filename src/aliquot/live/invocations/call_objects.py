"""The objects of one call of a kernel graph."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aliquot.live.node.base import InputFile, KernelFiles, OutputFile
from aliquot.live.objects.memory import OutputMemory
from aliquot.live.objects.registry import ObjectRecord


class CallObjects(Struct):
    """The objects of one call: held versions by key, and keys of outputs by name."""

    inputs: dict[str, ObjectRecord]
    outputs: dict[str, str]
    sizes: dict[str, int]  # of these outputs
    expire: frozenset[str]  # names of outputs that nobody has named, which are kept for a day
    path: Callable[[str], Path]  # of a blob, by digest
    memories: dict[str, OutputMemory] = {}

    def open(self) -> KernelFiles:
        """Return the files for a run, with new memories for its outputs. Raises `OSError`."""
        self.memories = {name: OutputMemory(self.sizes[name]) for name in self.outputs}
        return KernelFiles(
            tuple(InputFile(key, one.sha256, str(self.path(one.sha256))) for key, one in self.inputs.items()),
            tuple(OutputFile(name, self.outputs[name], memory.fd) for name, memory in self.memories.items()),
        )
