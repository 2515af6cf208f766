"""A policy's choice, looked at before it is carried out: can it be, with what the core knows?"""

from aliquot.core.commands import Start
from aliquot.core.domain import Domain
from aliquot.core.errors import PolicyError
from aliquot.core.interfaces import Choice
from aliquot.core.lifecycle import SandboxState
from aliquot.core.places import other_devices
from aliquot.core.pool import Pool
from aliquot.core.records import Device, Flow, Sandbox
from aliquot.core.registry import Registry

# What an invocation finds in an idle sandbox; one that is being brought up already counts as what it was.
START = {
    SandboxState.WARM: Start.WARM,
    SandboxState.HOST_WARM: Start.SWAP_IN,
    SandboxState.LOADING: Start.SWAP_IN,
    SandboxState.STARTING: Start.COLD,
}


def resolve(
    choice: Choice, domain: Domain, registry: Registry, pool: Pool
) -> tuple[Flow, tuple[Device, ...], Sandbox | None]:
    """The core's own records behind the choice; `PolicyError` when it cannot be carried out."""
    flow = registry.flows[choice.flow.key]
    device = registry.devices[choice.device.spec.name]
    sandbox = None
    if choice.sandbox is not None:
        sandbox = pool.sandboxes.get(choice.sandbox.id)
    if not flow.queue:
        complaint = "its queue is empty"
    elif sandbox is None:
        if choice.sandbox is None and domain.view.can_start(flow, device):
            return flow, (device, *other_devices(flow, device, domain.devices, domain.view.fits)), None
        complaint = f"no sandbox can start on {device.spec.name} now"
    elif sandbox.flow is flow and sandbox.invocation is None and domain.view.can_use(sandbox):
        return flow, sandbox.devices, sandbox
    else:
        complaint = f"{sandbox.tell()} cannot take it now"
    raise PolicyError(f"{type(domain.policy).__name__} chose {flow.key} ({choice.reason}), but {complaint}")
