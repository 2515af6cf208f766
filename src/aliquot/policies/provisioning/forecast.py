"""Hold sandboxes while the call that is forecast is worth their memory, our own policy.

A sandbox is worth holding while the chance of a call in the window, times the seconds of the start that it saves, is at
least the price of its memory for the window. It must be worth the whole price to be started, and a part of it to stay.
As many are held as are likely to be needed at once, the 95 % quantile of the forecast.
"""

from math import ceil, inf

from aliquot.core.events import DemandRow
from aliquot.core.interfaces import Params
from aliquot.core.provisioning.holds import HoldDecision, Provisioning
from aliquot.core.units import GIB, MIB
from aliquot.core.view import FlowView

MIN_HELD_BYTES = 64 * MIB  # a sandbox holds at least this much of the host
MIN_START_S = 0.1  # a start that declares no time and was never measured


class ForecastParams(Params, frozen=True):
    step_s: float = 60  # time in which a call is expected
    price: float = 0.02  # seconds of waiting that a GiB must save in each minute that it is held
    keep: float = 0.3  # part of the price that a sandbox must be worth to stay


class Forecast(Provisioning):
    params_type = ForecastParams

    def __init__(self, params: ForecastParams) -> None:
        super().__init__(params)
        self._params = params

    @property
    def step_s(self) -> float:
        return self._params.step_s

    def hold(self, flow: FlowView, row: DemandRow, *, held: bool) -> HoldDecision:
        spec, params = flow.spec, self._params
        declared_s = max(spec.times.cold_s, spec.times.load_s or 0)
        start_s = max(declared_s if flow.start_estimate_s is None else flow.start_estimate_s, MIN_START_S)
        gib = max(spec.memory_bytes * spec.device_count, spec.host_bytes, MIN_HELD_BYTES) / GIB
        cost_s = params.price * gib * row.window_s / 60
        worth = row.chance * start_s * flow.weight / cost_s if cost_s else inf
        sandboxes = max(1, ceil(row.high)) if worth >= (params.keep if held else 1) else 0
        saved = f"the chance of a call in {row.window_s:g} s is {row.chance:.2g} and saves {start_s:.2g} s"
        return HoldDecision(sandboxes, f"{saved}, {gib:.2g} GiB at the price {params.price:g}")
