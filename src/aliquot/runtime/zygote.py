"""A zygote: a process that has loaded the imports of a profile and forks sandboxes for the server.

It is run by file path, in the profile's own Python: `python -I zygote.py FD`. FD is its end of a Unix socket of
packets. Each packet is a JSON object:

    to the zygote    {"imports": […], "isolation": {…}}   first: the imports and the layers, with descriptors: the
                                                          files through which it enters its control groups
                     {"fork": n, "env": {…}, …}           a sandbox, with descriptors: its socket, stdout, stderr, the
                                                          files through which it enters its control groups, and a
                                                          mount for each place in "views" (`isolation.enter`)
    to the server    {"ready": true} or {"failed": "…"}
                     {"forked": n} and its pidfd, or {"unforked": n, "why": "…"}

A confined zygote has a supervisor, which speaks with the server in its place (`confinement.py`). Where the machine does
not allow that, the zygote speaks with the server itself and keeps the privileges that it needs to isolate sandboxes.

A zygote has one thread of its own, has no descriptor of the server except the socket, and never uses a device.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn


def _load_runtime() -> None:
    """Load the package of this file under its own name: the environment may have another Aliquot, or none."""
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "_aliquot_runtime", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} is not Aliquot's runtime")
    module = importlib.util.module_from_spec(spec)
    sys.modules["_aliquot_runtime"] = module
    spec.loader.exec_module(module)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import confinement, isolation, linux, sdk_support, supervisor
    from .zygote_process import Zygote
else:
    _load_runtime()
    from _aliquot_runtime import confinement, isolation, linux, sdk_support, supervisor


def _zygote_class(module: str, name: str) -> type[Zygote]:
    """Load a kind of zygote with all that sandboxes need. The supervisor stays small, because it forks preparers."""
    found: type[Zygote] = getattr(importlib.import_module(f"_aliquot_runtime.{module}"), name)
    return found


def main() -> NoReturn:
    linux.die_with_parent(signal.SIGKILL)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    data, procs, _, _ = socket.recv_fds(
        control, supervisor.PACKET_BYTES, supervisor.MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    settings = json.loads(data)
    layers = settings["isolation"]
    if not layers["confined"]:
        for fd in procs:
            os.write(fd, b"0")
            os.close(fd)
        isolation.enclose(layers)
        sdk_support.install_finder()
        _zygote_class("privileged_zygote", "PrivilegedZygote")(control, settings).serve()
    confinement.enclose_supervisor(layers)
    ours = supervisor.fork_zygote(layers, procs)
    if isinstance(ours, socket.socket):
        control.detach()
        sdk_support.install_finder()
        _zygote_class("zygote_process", "ConfinedZygote")(ours, settings).serve()
    for fd in procs:
        os.close(fd)
    supervisor.Supervisor(control, *ours, layers).serve()


if __name__ == "__main__":
    main()
