"""Device memory that a function needs only while a call of it is in flight (`FunctionSpec.run_bytes`).

A sandbox holds these bytes on each of its devices from the dispatch of a call until it is idle again. So a sandbox that
is resident may still lack room for a run. Its own bytes are no room for itself.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY
from aliquot.core.model import FunctionSpec

if TYPE_CHECKING:
    from aliquot.core.flow import Flow
    from aliquot.core.records import Sandbox
    from aliquot.core.view import DeviceView, FlowView, SandboxView


def start_bytes(spec: FunctionSpec) -> int:
    """Return the bytes that a new sandbox and its first run need together."""
    return spec.memory_bytes + spec.run_bytes


def room_to_run(sandbox: "SandboxView") -> bool:
    """Return whether an idle sandbox has room for its bytes and a run on its devices, if others are evicted."""
    spec = sandbox.flow.spec
    needed = spec.run_bytes + (0 if sandbox.state in HOLDS_DEVICE_MEMORY else spec.memory_bytes)
    needed += sandbox.evictable_bytes
    return all(needed <= device.free_bytes + device.evictable_bytes for device in sandbox.devices)


def may_be_on(flow: "FlowView", device: "DeviceView") -> bool:
    """Return whether the flow may have one more sandbox on the device. Some may have only one there."""
    return not flow.spec.one_per_device or device.index not in flow.sandboxes_on


def count_sandbox(sandbox: "Sandbox") -> None:
    """Count a new sandbox on its devices."""
    on = sandbox.flow.sandboxes_on
    for device in sandbox.devices:
        on[device.index] = on.get(device.index, 0) + 1


def discount_sandbox(sandbox: "Sandbox") -> None:
    """Forget a sandbox on its devices."""
    on = sandbox.flow.sandboxes_on
    for device in sandbox.devices:
        on[device.index] -= 1
        if not on[device.index]:
            del on[device.index]


def hold(sandbox: "Sandbox", size_bytes: int) -> None:
    """Hold the bytes of a run on the sandbox's devices, where there is room for them."""
    sandbox.run_bytes = size_bytes
    for device in sandbox.devices:
        device.resident_bytes += size_bytes


def give_back(sandbox: "Sandbox") -> None:
    """Free the bytes of a run that has ended, so that flows that wait for memory are tried again."""
    for device in sandbox.devices:
        device.resident_bytes -= sandbox.run_bytes
        device.note_freed()
    sandbox.run_bytes = 0


def sandboxes_by_device(flow: "Flow") -> dict[int, int]:
    """Recount the sandboxes of a flow on each device."""
    counts: dict[int, int] = {}
    for sandbox in flow.sandboxes.values():
        for device in sandbox.devices:
            counts[device.index] = counts.get(device.index, 0) + 1
    return counts


def violations(flow: "Flow") -> Iterator[str]:
    """Yield a text for each count of a flow that differs from the recomputed one."""
    counts = sandboxes_by_device(flow) if flow.spec.one_per_device else {}
    current = [sandbox for sandbox in flow.sandboxes.values() if sandbox.retired is None]
    twice = len(current) == len(flow.sandboxes) and max(counts.values(), default=0) > 1
    if flow.sandboxes_on != counts or twice:
        yield f"{flow.key} counts sandboxes {flow.sandboxes_on} by device, there are {counts}"
    for sandbox in current:  # an older version may have needed others
        held = 0 if sandbox.invocation is None else flow.spec.run_bytes
        if sandbox.run_bytes != held:
            yield f"holds {sandbox.run_bytes} bytes for runs, not {held}: {sandbox.describe()}"
