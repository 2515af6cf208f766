"""The objects of one call of a kernel graph."""

from itertools import count

from msgspec import Struct

from aliquot.live.node.base import InputFile, KernelFiles, OutputFile
from aliquot.live.node.output_memory import OutputMemory

_versions = count(1)


class NamedOutput(Struct, frozen=True):
    """An output that becomes an object."""

    key: str
    size: int
    stay: bool = False  # it is left on the device, and written after the call
    expires: bool = False  # nobody has named it, so it is kept for a day
    handed: bool = False  # it is for the next graph of a sequence alone, and is not stored


class CallObjects(Struct):
    """The objects of one call: held versions of its inputs, and outputs by name."""

    inputs: tuple[InputFile, ...]
    outputs: dict[str, NamedOutput]
    memories: dict[str, OutputMemory] = {}

    def open(self) -> KernelFiles:
        """Return the files for a run, with new memories for its outputs. Raises `OSError`."""
        self.memories = {
            name: OutputMemory(output.size, f"{next(_versions)}" if output.stay else "")
            for name, output in self.outputs.items()
        }
        outputs = (OutputFile(name, self.outputs[name].key, memory) for name, memory in self.memories.items())
        return KernelFiles(self.inputs, tuple(outputs))
