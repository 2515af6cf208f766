"""Check the lists of sandboxes that were started ahead and never used."""

from collections.abc import Iterable, Iterator

from aliquot.core.device import Device
from aliquot.core.lifecycle import STARTING, WARM
from aliquot.core.pool import Pool


def violations(devices: Iterable[Device], pool: Pool) -> Iterator[str]:
    """Yield a text for each unused sandbox that is not listed where it is, or listed without being there."""
    for device in devices:
        unused = sorted(number for number, sandbox in device.sandboxes.items() if sandbox.unused)
        if sorted(device.unused) != unused:
            yield f"{device.spec.name} lists {sorted(device.unused)} as started ahead and unused, there are {unused}"
    for sandbox in pool.sandboxes.values():
        if sandbox.unused != (sandbox.id in sandbox.host.unused):
            yield f"its host lists it wrongly among the unused: {sandbox.describe()}"
        if sandbox.unused and (sandbox.invocation is not None or sandbox.uses or sandbox.state not in {STARTING, WARM}):
            yield f"counted as unused: {sandbox.describe()}"
