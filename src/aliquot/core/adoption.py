"""Check whether a sandbox that another scheduler has started can be taken over."""

from aliquot.core.device import Device
from aliquot.core.errors import EventError
from aliquot.core.flow import Flow
from aliquot.core.places import place_of, place_text
from aliquot.core.run_memory import may_be_on, start_bytes
from aliquot.core.view import SHARE_TOLERANCE


def check_adoption(flow: Flow, devices: tuple[Device, ...], pool_slots: int | None, *, runs: bool) -> None:
    """Raise `EventError` if the sandbox would not fit on its devices, so that the shell stops it."""
    spec = flow.spec
    if len(devices) != spec.device_count or any(not spec.runs_on(device.spec) for device in devices):
        raise EventError(f"{flow.key} cannot be on {place_text(place_of([device.spec for device in devices]))}")
    needed = start_bytes(spec) if runs else spec.memory_bytes
    for device in devices:
        room = device.free_bytes >= needed and not device.host.lacks(spec.host_bytes)
        share = device.shares_used + spec.share_on(device.spec) <= 1 + SHARE_TOLERANCE
        if not room or not may_be_on(flow, device) or (runs and (device.running >= device.max_slots or not share)):
            raise EventError(f"{device.spec.name} has no room for a sandbox of {flow.key}")
        if pool_slots is not None and device.spec.memory_bytes is not None and len(device.sandboxes) >= pool_slots:
            raise EventError(f"{device.spec.name}: all {pool_slots} pool slots are in use")
    if spec.instances is not None and len(flow.sandboxes) >= spec.instances:
        raise EventError(f"{flow.key} may have {spec.instances} sandboxes")
