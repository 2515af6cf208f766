"""The runtimes for each kind of function, one line per family. The version is the one that the node has."""

import functools
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aliquot.live.node.kind_packages import KindPackages
from aliquot.runtime import frames

_LAUNCHER = Path(frames.__file__).parent / "launcher.js"


class UnknownKindError(Exception):
    """The node cannot run functions of this kind. The text says what would help."""


class FunctionRuntime(Struct, frozen=True):
    """The way a forked sandbox continues: as the Python process that it is, or by executing another program."""

    python: bool
    command: Callable[[int], list[str] | None]  # the program, given the function's memory limit
    visible: tuple[str, ...] = ()  # paths that its sandboxes may read


def _python(_: KindPackages) -> FunctionRuntime:
    return FunctionRuntime(python=True, command=lambda _: None)


@functools.cache
def _nodejs(packages: KindPackages) -> FunctionRuntime:
    found = shutil.which("node")
    if found is None:
        raise UnknownKindError("This node has no Node.js; install it so that `node` is on the server's PATH.")
    program = Path(found).resolve()

    def command(memory_bytes: int) -> list[str]:
        # The heap may grow to the memory limit, so that the kernel reports the exhaustion. Node.js would only abort.
        heap = f"--max-old-space-size={max(16, memory_bytes >> 20)}"
        return [str(program), heap, "--expose-gc", str(_LAUNCHER), packages.node_modules]

    modules = (packages.node_modules,) if packages.node_modules else ()
    return FunctionRuntime(python=False, command=command, visible=(str(program.parent.parent), *modules))


@functools.cache
def _kernel(_: KindPackages) -> FunctionRuntime:
    if importlib.util.find_spec("pyopencl") is None:
        raise UnknownKindError(
            "This node runs no kernel graphs; its operator adds them: pip install 'aliquot[kernels]'."
        )
    return FunctionRuntime(python=True, command=lambda _: None)


FAMILIES: dict[str, Callable[[KindPackages], FunctionRuntime]] = {
    "kernel": _kernel,
    "nodejs": _nodejs,
    "python": _python,
}


def runtime_of(kind: str, packages: KindPackages) -> FunctionRuntime:
    family = kind.partition(":")[0]
    make = FAMILIES.get(family)
    if make is None:
        raise UnknownKindError(f"This node runs no functions of the kind {kind!r}; it knows {', '.join(FAMILIES)}.")
    return make(packages)
