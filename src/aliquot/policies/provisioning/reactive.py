"""Hold as many sandboxes as calls ran at once lately, as autoscalers do that follow demand."""

from math import ceil

from aliquot.core.events import DemandRow
from aliquot.core.interfaces import Params
from aliquot.core.provisioning.policy import HoldDecision, Provisioning
from aliquot.core.view import FlowView


class ReactiveParams(Params, frozen=True):
    step_s: float = 60  # time over which calls at once are measured
    headroom: float = 0.1  # part that is held beyond what was measured


class Reactive(Provisioning):
    params_type = ReactiveParams

    def __init__(self, params: ReactiveParams) -> None:
        super().__init__(params)
        self._params = params

    @property
    def step_s(self) -> float:
        return self._params.step_s

    def hold(self, flow: FlowView, row: DemandRow, *, held: bool) -> HoldDecision:
        sandboxes = ceil(row.measured * (1 + self._params.headroom)) if row.measured else 0
        return HoldDecision(sandboxes, f"{row.measured:g} ran at once lately")
