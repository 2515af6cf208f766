"""The isolation layers between a sandbox and the rest of the machine, and a probe for those that the machine offers."""

import json
import os
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.live.device.records import NO_ACCESS, DeviceAccess
from aliquot.live.node.environments.pip_settings import configuration_files
from aliquot.runtime import frames

# Each data directory has a range of 65536 user ids for its sandboxes, far from the ids that machines use.
_UIDS_FROM = 1_000_000_000
_UIDS = 65_536
_RANGES = 16_000
ZYGOTE_SCRATCH_BYTES = 64 * MIB
_PROBE = Path(frames.__file__).parent / "probe.py"


class Isolation(Struct, frozen=True):
    """The layers in use. Without any, sandboxes are plain processes with the server's rights, for debugging."""

    user: bool = False  # a user namespace: zygotes have their privileges only in there
    mount: bool = False  # files: its own root directory, which contains only the system and the interpreter
    pid: bool = False  # processes: a sandbox sees only its own, and they end with it
    ipc: bool = False  # shared memory, semaphores, host name
    own_uid: bool = False  # a user id for each sandbox
    landlock: bool = False  # files a second time, signals and abstract sockets
    seccomp: bool = False  # a filter of system calls that functions do not need
    cgroups: bool = False  # memory and number of processes, counted for the whole sandbox
    network: bool = False  # ports, and a way out of the machine that the operator can close
    confined: bool = False  # zygotes have no privileges when they import
    views: bool = False  # not a layer: datasets and volumes can be mounted


NO_ISOLATION = Isolation()


class ProbeResult(Struct, frozen=True):
    """The reason why each layer is not available on this machine. It is empty for a layer that works."""

    user: str
    mount: str
    pid: str
    ipc: str
    uid: str
    landlock: str
    seccomp: str
    network: str
    confined: str
    views: str


def uid_range(data: Path) -> tuple[int, int]:
    return _UIDS_FROM + zlib.crc32(str(data).encode()) % _RANGES * _UIDS, _UIDS


class IsolationProbe:
    """A separate process that tries each layer. It runs from the beginning, so that others can work meanwhile."""

    def __init__(self, data: Path) -> None:
        uids = list(uid_range(data)) if os.geteuid() == 0 else None
        confined = Isolation(user=True, mount=True, pid=True, own_uid=uids is not None, confined=True)
        settings = walls(confined, data) | {"zygote_uid": None if uids is None else 1}
        given = json.dumps({"uids": uids, "hidden": str(data), "walls": settings})
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", str(_PROBE), given],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, cwd="/",
        )  # fmt: skip

    def result(self) -> ProbeResult:
        """Wait for the end of the process, and return what it has found. It is called once."""
        found, errors = self._process.communicate()
        try:
            return ProbeResult(**json.loads(found))
        except ValueError:
            why = errors.decode(errors="replace").strip().rpartition("\n")[2]
            why = why or f"exit status {self._process.returncode}"
            return ProbeResult(*[f"the probe failed: {why}"] * len(ProbeResult.__struct_fields__))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if nobody has waited for its result."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def probe(data: Path) -> ProbeResult:
    """Try each layer in a separate process."""
    return IsolationProbe(data).result()


def choose(found: ProbeResult) -> Isolation:
    """Choose the strongest combination of layers that works."""
    root = os.geteuid() == 0
    user, mount, pid = not found.user, not found.mount, not found.pid
    own_uid = root and not found.uid and is_readable_by_others(mounts=mount)
    if root:
        # A zygote that runs as another user can mount and make namespaces only in a user namespace.
        user = user and own_uid and mount and pid
    else:
        mount, pid = mount and user, pid and user
    return Isolation(
        user=user,
        mount=mount,
        pid=pid,
        ipc=not found.ipc and (root or user),
        own_uid=own_uid,
        landlock=not found.landlock,
        seccomp=not found.seccomp,
        cgroups=True,
        network=root and not found.network,
        confined=user and mount and pid and not found.confined,
        views=mount and not found.views,
    )


def is_readable_by_others(*, mounts: bool) -> bool:
    """Return whether another user can run this interpreter. With `mounts`, parent directories do not matter."""
    for prefix in {Path(sys.prefix), Path(sys.base_prefix), _PROBE.parent}:
        for directory in [prefix] if mounts else [prefix, *prefix.parents]:
            if not directory.stat().st_mode & stat.S_IXOTH:
                return False
    return True


def walls(
    isolation: Isolation,
    data: Path,
    visible: tuple[str, ...] = (),
    access: DeviceAccess = NO_ACCESS,
    *,
    views: tuple[str, ...] = (),
    own_network: bool = False,
) -> dict[str, Any]:
    """Return the settings for `aliquot.runtime.isolation`. Zygotes and builders get a network of their own."""
    return {
        "confined": isolation.confined,
        "zygote_uid": None,
        "zygote_scratch_bytes": ZYGOTE_SCRATCH_BYTES,
        "user": isolation.user,
        "mount": isolation.mount,
        "pid": isolation.pid,
        "ipc": isolation.ipc,
        "uids": uid_range(data) if isolation.own_uid else None,
        "landlock": isolation.landlock,
        "seccomp": isolation.seccomp,
        "visible": (*visible, *access.visible),
        "hidden": str(data),
        "masked": configuration_files(),
        "writable": list(access.writable),
        "devices": list(access.files),
        "views": list(views),
        "network": own_network and isolation.network,
    }
