"""Hold sandboxes while the call that is forecast is worth their memory, our own policy.

A sandbox is worth holding while the chance of a call in the window, times the seconds of the start that it saves, is at
least the price of its memory for the window. It must be worth the whole price to be started, and a part of it to stay.
As many are held as are likely to be needed at once, the 95 % quantile of the forecast.

A regular call comes in the middle of its window. A start that takes longer than a quarter of the window begins so much
earlier: the chances of the windows that it reaches into count, too. For a call that is known to come a sandbox is held
if its start is worth the memory for as long as it takes.
"""

from math import ceil, inf

from aliquot.core.events import DemandRow
from aliquot.core.interfaces import Params
from aliquot.core.provisioning.policy import HoldDecision, Provisioning
from aliquot.core.units import GIB, MIB
from aliquot.core.view import FlowView

MIN_HELD_BYTES = 64 * MIB  # a sandbox holds at least this much of the host
MIN_START_S = 0.1  # a start that declares no time and was never measured
TICKS_PER_WINDOW = 6  # forecasts come so often
LATEST_PART = 4  # a start is over within 1/4 of the window in whose middle a regular call comes


class ForecastParams(Params, frozen=True):
    step_s: float = 60  # time in which a call is expected
    price: float = 0.02  # seconds of waiting that a GiB must save in each minute that it is held
    keep: float = 0.3  # part of the price that a sandbox must be worth to stay
    moves: bool = True  # sandboxes leave devices that forecasts exceed


class Forecast(Provisioning):
    params_type = ForecastParams

    def __init__(self, params: ForecastParams) -> None:
        super().__init__(params)
        self._params = params

    @property
    def step_s(self) -> float:
        return self._params.step_s

    def hold(self, flow: FlowView, row: DemandRow, *, held: bool) -> HoldDecision:
        params, start_s = self._params, _start_s(flow)
        chance = _chance_ahead(row, start_s)
        worth = self._worth(flow, chance, start_s, row.window_s)
        sandboxes = max(1, ceil(row.high)) if worth >= (params.keep if held else 1) else 0
        saved = f"the chance of a call in {row.window_s:g} s is {chance:.2g} and saves {start_s:.2g} s"
        return HoldDecision(sandboxes, f"{saved}, {_gib(flow):.2g} GiB at the price {params.price:g}")

    def earns(self, flow: FlowView, row: DemandRow, used_part: float) -> bool:
        return self._worth(flow, used_part, _start_s(flow), row.window_s) >= self._params.keep

    @property
    def moves(self) -> bool:
        return self._params.moves

    def expected(self, flow: FlowView, source: str) -> HoldDecision:
        start_s = _start_s(flow)
        worth = self._worth(flow, 1.0, start_s, start_s)
        reason = f"a call is known to come, by the {source}, and {start_s:.2g} s are saved"
        return HoldDecision(1 if worth >= 1 else 0, reason)

    def _worth(self, flow: FlowView, chance: float, start_s: float, held_s: float) -> float:
        """Return the seconds that are saved, in units of what the memory costs for so long."""
        cost_s = self._params.price * _gib(flow) * held_s / 60
        return chance * start_s * flow.weight / cost_s if cost_s else inf


def _gib(flow: FlowView) -> float:
    """Return the memory that one of the flow's sandboxes holds, on its devices or on the host."""
    spec = flow.spec
    return max(spec.memory_bytes * spec.device_count, spec.host_bytes, MIN_HELD_BYTES) / GIB


def _start_s(flow: FlowView) -> float:
    """Return the time of a cold start, as measured or declared."""
    declared_s = max(flow.spec.times.cold_s, flow.spec.times.load_s or 0)
    return max(declared_s if flow.start_estimate_s is None else flow.start_estimate_s, MIN_START_S)


def _chance_ahead(row: DemandRow, start_s: float) -> float:
    """Return the chance of a call in the window, or the highest of the windows that a start from now reaches into."""
    lead_s = start_s + row.window_s / TICKS_PER_WINDOW - row.window_s / LATEST_PART
    reached = sum(row.ends_s + number * row.window_s <= lead_s for number in range(len(row.later)))
    return max((row.chance, *row.later[:reached]))
