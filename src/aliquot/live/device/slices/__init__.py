"""Slices of virtual devices: they are enforced in the best of three ways that this machine offers."""

from aliquot.live.device.cgroup_files import is_mounted
from aliquot.live.device.slices.base import ROOT, SliceEnforcer
from aliquot.live.device.slices.cgroups_v1 import TREES, CgroupV1Enforcer
from aliquot.live.device.slices.cgroups_v2 import CgroupV2Enforcer
from aliquot.live.device.slices.nice import NiceEnforcer


def open_enforcer(tag: str) -> SliceEnforcer:
    """Return the best enforcer. `tag` is unique on the machine."""
    missing = [name for name in TREES if not (ROOT / name).is_dir()]
    try:
        if not missing:
            return CgroupV1Enforcer(tag)
        if is_mounted():
            return CgroupV2Enforcer.claim(tag)
        return NiceEnforcer(f"{ROOT}: no controller {', '.join(missing)}")
    except OSError as error:
        return NiceEnforcer(f"{error.filename or ROOT}: {error.strerror}")


__all__ = ["SliceEnforcer", "open_enforcer"]
