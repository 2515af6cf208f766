"""The kind of policy that decides what is held for demand which is foreseen."""

from typing import ClassVar, NamedTuple

from aliquot.core.events import DemandRow
from aliquot.core.interfaces import Params
from aliquot.core.view import FlowView


class HoldDecision(NamedTuple):
    """The number of sandboxes that a flow shall have, and the reason, for people to read."""

    sandboxes: int
    reason: str


class Provisioning:
    """Decides how many sandboxes of a flow are held for the demand that is forecast. None are, by default."""

    params_type: ClassVar[type[Params]] = Params

    def __init__(self, params: Params) -> None:
        self.params = params

    @property
    def step_s(self) -> float | None:
        """Return the length of the steps of the forecasts that it wants, or None if it wants none."""
        return None

    @property
    def moves(self) -> bool:
        """Return whether sandboxes move away from devices that forecasts exceed."""
        return False

    def hold(self, flow: FlowView, row: DemandRow, *, held: bool) -> HoldDecision:
        """Return what is held for a forecast. `held`: a sandbox of the flow is held unused. No side effects."""
        return HoldDecision(0, "nothing is held")

    def earns(self, flow: FlowView, row: DemandRow, used_part: float) -> bool:
        """Return whether holds pay for a flow of whose last ones this part was used. No side effects."""
        return True

    def expected(self, flow: FlowView, source: str) -> HoldDecision:
        """Return how many more sandboxes a call that is known to come shall find. No side effects."""
        return HoldDecision(0, "nothing is held")
