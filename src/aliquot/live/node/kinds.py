"""What runs a function of each kind: one line a family. Versions are whatever the node has."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aliquot.runtime import frames

_LAUNCHER = Path(frames.__file__).parent / "launcher.js"


class UnknownKindError(Exception):
    """Nothing here runs such functions; the text says what would."""


class FunctionRuntime(Struct, frozen=True):
    """How a forked sandbox goes on: as the Python that it is, or by executing something else."""

    python: bool
    command: Callable[[int], list[str] | None]  # by the function's memory limit
    visible: tuple[str, ...] = ()


def _python() -> FunctionRuntime:
    return FunctionRuntime(python=True, command=lambda _: None)


@functools.cache
def _nodejs() -> FunctionRuntime:
    found = shutil.which("node")
    if found is None:
        raise UnknownKindError("This node has no Node.js; install it so that `node` is on the server's PATH.")
    program = Path(found).resolve()

    def command(memory_bytes: int) -> list[str]:
        # The heap may grow to the limit: the kernel then says what happened, where Node.js would only abort.
        return [str(program), f"--max-old-space-size={max(16, memory_bytes >> 20)}", str(_LAUNCHER)]

    return FunctionRuntime(python=False, command=command, visible=(str(program.parent.parent),))


FAMILIES: dict[str, Callable[[], FunctionRuntime]] = {
    "nodejs": _nodejs,
    "python": _python,
}


def runtime_of(kind: str) -> FunctionRuntime:
    family = kind.partition(":")[0]
    make = FAMILIES.get(family)
    if make is None:
        raise UnknownKindError(f"This node runs no functions of the kind {kind!r}; it knows {', '.join(FAMILIES)}.")
    return make()
