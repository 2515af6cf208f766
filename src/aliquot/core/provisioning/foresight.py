"""All that the core does ahead of demand: holds for forecasts, starts for known calls, moves, and capacity wanted."""

from collections.abc import Callable

from aliquot.core.admission.plan import Plan
from aliquot.core.commands import Command
from aliquot.core.events import Event
from aliquot.core.pool import Pool
from aliquot.core.provisioning.capacity import CapacityWanted
from aliquot.core.provisioning.expected import ExpectedCalls
from aliquot.core.provisioning.holds import Holds
from aliquot.core.provisioning.moves import Moves
from aliquot.core.provisioning.policy import Provisioning
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.registry import Registry
from aliquot.core.slices import SliceAllocator
from aliquot.core.timers import Timers


class Foresight:
    """The parts that act ahead of demand, by one provisioning policy."""

    def __init__(
        self,
        policy: Provisioning,
        provisioner: Provisioner,
        registry: Registry,
        pool: Pool,
        slices: SliceAllocator,
        plan: Plan,
        timers: Timers,
        outbox: list[Command],
    ) -> None:
        self.policy = policy
        self.capacity = CapacityWanted(registry, outbox)
        self.moves = Moves(registry, pool, slices, plan, timers, outbox)
        self.expected = ExpectedCalls(policy, provisioner, registry, plan, timers)
        self.holds = Holds(policy, provisioner, registry, plan, timers, self.moves, self.capacity)

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        """Return the function for each kind of event that concerns the future."""
        return {**self.holds.handlers(), **self.expected.handlers(), **self.moves.handlers()}
