"""Examines this machine as a node would: which isolation it offers, and what follows where it offers none."""

import os
import platform
import shutil
import sys
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from aliquot.core.units import GIB
from aliquot.learn.extra import INSTALL, missing_packages
from aliquot.live.device.base import DriverContext
from aliquot.live.device.nvidia.nvml import NvmlError
from aliquot.live.device.nvidia.pynvml_adapter import open_nvml
from aliquot.live.device.survey import no_nvidia, survey_host, survey_nvidia
from aliquot.live.node.cgroups import NodeCgroups
from aliquot.live.node.environments.pip_settings import has_pip
from aliquot.live.node.isolation import Isolation, ProbeResult, choose, probe
from aliquot.live.node.kind_installation import installable_kinds
from aliquot.live.node.kind_packages import INSTALL_COMMAND, KindFolder
from aliquot.runtime import view_mount
from aliquot.storage.view import wire

_LOW_DISK_BYTES = 2 * GIB
_MIN_KERNEL = (5, 12)  # mount_setattr; pidfds and the rest came before


class DoctorFinding(Struct, frozen=True):
    name: str
    ok: bool
    detail: str
    consequence: str = ""  # what follows if it is not ok


# By field of `ProbeResult`: the name of the isolation layer, and what follows without it.
_LAYERS = {
    "user": (
        "user namespaces",
        "zygotes keep the server's rights while they import what functions declare; without root no namespace works",
    ),
    "mount": ("mount namespaces", "sandboxes see the machine's files; only Landlock and user ids protect them"),
    "pid": (
        "pid namespaces",
        "sandboxes see each other's processes, and children that a function detached may outlive a killed server",
    ),
    "ipc": ("ipc and host name namespaces", "sandboxes share System V memory and semaphores"),
    "uid": (
        "a user id for each sandbox",
        "sandboxes run as the server's user; namespaces and Landlock alone separate them",
    ),
    "landlock": ("Landlock", "files are protected by namespaces and user ids alone"),
    "seccomp": ("system call filter", "functions may use every system call that their user may"),
    "network": (
        "network namespaces",
        "sandboxes share the machine's network: one can reach what another listens on, and --egress has no effect",
    ),
    "confined": (
        "imports without privileges",
        "what functions import has privileges in its user namespace, and no filter of system calls",
    ),
    "views": (
        "views of datasets",
        "functions that name datasets cannot run here; /dev/fuse must be there and writable",
    ),
}


_FIELDS = {"uid": "own_uid"}  # fields that have another name in `Isolation`


def examine(data: Path) -> list[DoctorFinding]:
    """Return all findings. Starts processes, takes a fraction of a second and leaves nothing behind."""
    found = probe(data.absolute())
    walls = [_system(), *_walls(found), _passthrough(choose(found)), _cgroups()]
    runtimes = [_python(), _pip(), _nodejs(), *_packages(data), _networks()]
    return [*walls, *_devices(choose(found)), *runtimes, _disk(data)]


def lacking(isolation: Isolation) -> tuple[str, ...]:
    """Return one line for each isolation layer that is missing: its name, and what follows."""
    return tuple(
        f"{name}: {consequence}"
        for field, (name, consequence) in _LAYERS.items()
        if not getattr(isolation, _FIELDS.get(field, field))
    )


def _system() -> DoctorFinding:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    return DoctorFinding(
        "kernel",
        sys.platform == "linux" and numbers >= _MIN_KERNEL,
        f"{platform.system()} {release}",
        "sandboxes need Linux 5.12 or newer",
    )


def _walls(found: ProbeResult) -> list[DoctorFinding]:
    chosen = choose(found)
    findings = []
    for field, (name, consequence) in _LAYERS.items():
        why_not = getattr(found, field)
        used = getattr(chosen, _FIELDS.get(field, field))
        if used:
            detail = "in use"
        elif why_not:
            detail = why_not
        else:
            detail = "it works, but not together with what is missing here"
        findings.append(DoctorFinding(name, used, detail, "" if used else consequence))
    return findings


def _passthrough(isolation: Isolation) -> DoctorFinding:
    """Find out whether the kernel reads whole files of a view without the storage agent."""
    name, slower = "passthrough", "what functions read of datasets is copied by the storage agent: slower than the disk"
    if not isolation.views:
        return DoctorFinding(name, ok=False, detail="there are no views", consequence=slower)
    if os.geteuid() != 0:
        return DoctorFinding(name, ok=False, detail="the server is not root", consequence=slower)
    device, mount = view_mount.make()
    try:
        request = os.read(device, wire.MAX_REQUEST_BYTES)
    finally:
        os.close(mount)
        os.close(device)
    agreed, _ = wire.init(request[wire.REQUEST.size :])
    if agreed & wire.PASSTHROUGH:
        return DoctorFinding(name, ok=True, detail="functions read cached files as fast as the disk gives them")
    return DoctorFinding(name, ok=False, detail="the kernel has none; Linux 6.9 or newer may", consequence=slower)


def _cgroups() -> DoctorFinding:
    groups = NodeCgroups(f"aliquot-doctor-{os.getpid()}")
    groups.close()
    consequence = (
        "memory is bounded for each process of a sandbox or build (RLIMIT_DATA), not for all together; idle sandboxes "
        "are stopped by a signal and not frozen; processors are not divided among tenants"
    )
    if groups.version:
        return DoctorFinding("control groups", ok=True, detail=f"version {groups.version}")
    return DoctorFinding("control groups", ok=False, detail=groups.why_not, consequence=consequence)


def _devices(isolation: Isolation) -> list[DoctorFinding]:
    context = DriverContext(own_uid=isolation.own_uid, own_root=isolation.mount)
    try:
        with closing(open_nvml()) as nvml:
            gpus = survey_nvidia(nvml, context)
    except NvmlError as error:
        gpus = [no_nvidia(error)]
    return [DoctorFinding(each.driver, each.usable, each.detail, each.lacking) for each in (survey_host(), *gpus)]


def _python() -> DoctorFinding:
    return DoctorFinding("python", ok=True, detail=f"{platform.python_version()} at {sys.executable}")


def _pip() -> DoctorFinding:
    detail = (
        "the server's own" if has_pip() else "not in the server's environment; each new environment installs its own"
    )
    return DoctorFinding("pip", ok=True, detail=detail)


def _nodejs() -> DoctorFinding:
    found = shutil.which("node")
    if found:
        return DoctorFinding("node.js", ok=True, detail=found)
    return DoctorFinding(
        "node.js", ok=False, detail="`node` is not on the PATH", consequence="no functions of kind nodejs:20"
    )


def _packages(data: Path) -> list[DoctorFinding]:
    """Find out which packages of the kinds that run here are installed."""
    findings = []
    for kind in installable_kinds():
        folder = KindFolder(data.absolute(), kind)
        missing = folder.missing()
        findings.append(
            DoctorFinding(
                f"packages of {kind}",
                ok=not missing,
                detail=f"missing are {', '.join(missing)}" if missing else f"in {folder.path}",
                consequence=f"functions cannot import them without requirements; `{INSTALL_COMMAND}` installs them",
            )
        )
    return findings


def _networks() -> DoctorFinding:
    missing = missing_packages()
    return DoctorFinding(
        "networks",
        ok=not missing,
        detail=f"missing are {', '.join(missing)}" if missing else "torch and onnxruntime are installed",
        consequence=f"files and calls are predicted from counts and simple forecasts alone; `{INSTALL}` adds networks",
    )


def _disk(data: Path) -> DoctorFinding:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return DoctorFinding(
        "disk",
        ok=free > _LOW_DISK_BYTES,
        detail=f"{free / GIB:.1f} GiB free at {place}",
        consequence="" if free > _LOW_DISK_BYTES else "environments and records may not find room",
    )
