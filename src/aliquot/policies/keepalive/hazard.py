"""Hazard keep-alive, our own policy: hold a sandbox for a flow while a call is likely enough to pay for its memory.

Once in a step, of a minute by default, an idle flow is asked for the chance of a call in the step that begins
(`parts/call_hazard.py`). A sandbox is worth holding while this chance, times the seconds of the cold start that it
saves, is at least the price of its memory for the step. Sandboxes that are not worth it are stopped, and one is started
ahead of the call as soon as it is. It must be worth the whole price to be started, and a part of it to stay, because
the chance goes up and down from step to step.

A flow's steps begin half a step before its first call, so that calls at regular times stay away from their edges. A
start that takes longer than a quarter of a step begins so much earlier: the flow is then also asked before a step
begins, and the chances of the steps that the start reaches into count, too.
"""

from math import inf

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.units import GIB, MIB
from aliquot.core.view import FlowView
from aliquot.policies.keepalive.parts.call_hazard import CallHazard, CallHistory

MIN_HELD_BYTES = 64 * MIB  # a sandbox holds at least this much of the host
MIN_START_S = 0.1  # a start that declares no time and was never measured
PEAK_DECAY = 0.25  # per step with calls, by which fewer calls at once are believed
RETRIES = 8  # attempts in a step to start sandboxes that had no room
LATEST_PART = 4  # a start is over within 1/4 of the step in whose middle a regular call comes
MAX_STEPS_AHEAD = 5  # steps that a long start looks ahead


class HazardParams(Params, frozen=True):
    step_s: float = 60
    price: float = 0.02  # seconds of waiting that a GiB must save in each minute that it is held
    keep: float = 0.15  # part of the price that a sandbox must be worth to stay
    horizon: int = 480  # steps without a call after which a flow is no longer looked at


class FlowForecast:
    """The history of a flow, and how many of its calls ran at once."""

    __slots__ = ("at_once", "history", "offset_s", "peak")

    def __init__(self, now: float, step_s: float) -> None:
        self.offset_s = step_s / 2 - now  # added to a time before it is divided into steps
        self.history = CallHistory(0)
        self.peak = 1.0  # most calls at once, decayed
        self.at_once = 0  # most in the current step


class Hazard(KeepAlive):
    params_type = HazardParams

    def __init__(self, params: HazardParams) -> None:
        super().__init__(params)
        self._params = params
        self._hazard = CallHazard()
        self._flows: dict[int, FlowForecast] = {}

    def flow_called(self, flow: FlowView, *, now: float) -> None:
        forecast = self._advance(flow, now)
        forecast.history.called = True
        at_once = flow.in_flight + flow.queued + 1
        forecast.at_once = max(forecast.at_once, at_once)

    def flow_idled(self, flow: FlowView, *, now: float) -> Expiry | None:
        return Expiry(self._next_time(flow, self._advance(flow, now), now), ExpiryAction.ASK)

    def flow_expired(self, flow: FlowView, done: Expiry, *, now: float) -> Expiry | None:
        forecast = self._advance(flow, now)
        history, following = forecast.history, self._next_time(flow, forecast, now)
        if done.action is ExpiryAction.STOP:
            return None if self._is_over(history) else Expiry(following, ExpiryAction.ASK)
        chance = self._chance_ahead(flow, forecast, now)
        wanted = self._wanted(flow, forecast, chance)
        there = len(flow.sandboxes)
        if there > wanted:
            return Expiry(now, ExpiryAction.STOP, wanted, self._reason(flow, chance))
        if there < wanted and done.action is ExpiryAction.ASK:
            return Expiry(now, ExpiryAction.START, wanted, self._reason(flow, chance))
        if there < wanted:
            following = min(following, after(now, self._params.step_s / RETRIES))
        elif self._is_over(history):
            return None
        return Expiry(following, ExpiryAction.ASK)

    def flow_closed(self, flow: FlowView) -> None:
        self._flows.pop(flow.index, None)

    def chance(self, flow: FlowView) -> float:
        """Return the chance of a call in the flow's current step, as of the begin of the step."""
        forecast = self._flows.get(flow.index)
        return 0.0 if forecast is None else forecast.history.chance

    def _advance(self, flow: FlowView, now: float) -> FlowForecast:
        """Return the flow's forecast for the step of this time."""
        forecast = self._flows.get(flow.index)
        if forecast is None:
            forecast = self._flows[flow.index] = FlowForecast(now, self._params.step_s)
        step = int((now + forecast.offset_s) / self._params.step_s)
        if step > forecast.history.step:
            if forecast.at_once:
                lower = forecast.peak + PEAK_DECAY * (forecast.at_once - forecast.peak)
                forecast.peak, forecast.at_once = max(float(forecast.at_once), lower), 0
            self._hazard.advance(forecast.history, step, self._params.horizon)
        return forecast

    def _next_step(self, forecast: FlowForecast) -> float:
        """Return when the flow's next step begins. A moment is added, so that rounding never puts it before."""
        return after((forecast.history.step + 1) * self._params.step_s - forecast.offset_s, 1e-6)

    def _next_time(self, flow: FlowView, forecast: FlowForecast, now: float) -> float:
        """Return when the flow is asked again: when a step begins, or when a start for a step must begin."""
        begins, lead_s = self._next_step(forecast), self._lead_s(flow)
        if not lead_s:
            return begins
        starts = after(begins, -(lead_s % self._params.step_s))
        return starts if starts > now else begins

    def _lead_s(self, flow: FlowView) -> float:
        """Return how long before a step a start must begin, so that it is over early in the step."""
        step_s = self._params.step_s
        return min(max(0.0, self._start_s(flow) - step_s / LATEST_PART), MAX_STEPS_AHEAD * step_s)

    def _chance_ahead(self, flow: FlowView, forecast: FlowForecast, now: float) -> float:
        """Return the chance of a call in the current step, or the highest of those that a start reaches into."""
        history, lead_s = forecast.history, self._lead_s(flow)
        if not lead_s:
            return history.chance
        ahead = int((after(now, lead_s) + forecast.offset_s) / self._params.step_s) - history.step
        later = (self._hazard.later(history, steps) for steps in range(1, ahead + 1))
        return max((history.chance, *later))

    def _is_over(self, history: CallHistory) -> bool:
        """Return whether the flow has had no call for so long that no other is expected."""
        return history.step - history.last > self._params.horizon

    def _wanted(self, flow: FlowView, forecast: FlowForecast, chance: float) -> int:
        """Return how many sandboxes are worth their memory."""
        if self._is_over(forecast.history):
            return 0
        worth = chance * self._break_even(flow)
        return round(forecast.peak) if worth >= (self._params.keep if flow.sandboxes else 1) else 0

    def _break_even(self, flow: FlowView) -> float:
        """Return the reciprocal of the chance from which on a sandbox is worth its memory."""
        params, spec = self._params, flow.spec
        start_s = max(self._start_s(flow), MIN_START_S)
        gib = max(spec.memory_bytes * spec.device_count, spec.host_bytes, MIN_HELD_BYTES) / GIB
        cost_s = params.price * gib * params.step_s / 60
        return start_s * flow.weight / cost_s if cost_s else inf

    def _start_s(self, flow: FlowView) -> float:
        """Return the time of a cold start, as measured or declared."""
        times = flow.spec.times
        return max(times.cold_s, times.load_s or 0) if flow.start_estimate_s is None else flow.start_estimate_s

    def _reason(self, flow: FlowView, chance: float) -> str:
        needed = 1 / self._break_even(flow)
        return (
            f"the chance of a call in {self._params.step_s:g} s is {chance:.2g}, its memory pays from {needed:.2g} on"
        )
