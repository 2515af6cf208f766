"""Check that a policy's choice can be carried out, before it is."""

from aliquot.core.commands import Start
from aliquot.core.device import Device
from aliquot.core.domain import Domain
from aliquot.core.errors import PolicyError
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Choice
from aliquot.core.lifecycle import SandboxState
from aliquot.core.places import other_devices
from aliquot.core.pool import Pool
from aliquot.core.records import Sandbox
from aliquot.core.registry import Registry

# The kind of start in an idle sandbox. One that is still starting or loading counts as the start it is in.
START = {
    SandboxState.WARM: Start.WARM,
    SandboxState.HOST_WARM: Start.SWAP_IN,
    SandboxState.LOADING: Start.SWAP_IN,
    SandboxState.STARTING: Start.COLD,
}


def resolve(
    choice: Choice, domain: Domain, registry: Registry, pool: Pool
) -> tuple[Flow, tuple[Device, ...], Sandbox | None]:
    """Return the records that the choice refers to. Raises `PolicyError` if it cannot be carried out."""
    flow = registry.flows[choice.flow.key]
    device = registry.devices[choice.device.spec.name]
    sandbox = None
    if choice.sandbox is not None:
        sandbox = pool.sandboxes.get(choice.sandbox.id)
    if not flow.queue:
        problem = "its queue is empty"
    elif sandbox is None:
        if choice.sandbox is None and domain.view.can_start(flow, device):
            return flow, (device, *other_devices(flow, device, domain.devices, domain.view.fits)), None
        problem = f"no sandbox can start on {device.spec.name} now"
    elif sandbox.flow is flow and sandbox.invocation is None and domain.view.can_use(sandbox):
        return flow, sandbox.devices, sandbox
    else:
        problem = f"{sandbox.describe()} cannot take it now"
    raise PolicyError(f"{type(domain.policy).__name__} chose {flow.key} ({choice.reason}), but {problem}")
