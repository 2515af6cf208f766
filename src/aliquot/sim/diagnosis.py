"""Describe a comparison of policies in words: which is best, why others are slower, and what calls wait for."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from statistics import fmean

from msgspec import Struct

from aliquot.core.model import CPU, DeviceSpec, FunctionSpec
from aliquot.core.units import GIB
from aliquot.sim.engine import Scenario
from aliquot.sim.report import RunReport

MIN_DIFFERENCE = 0.05  # parts of the best mean latency that a policy may have more without being called slower
SHORT_WAIT = 0.2  # part of the latency
BUSY = 0.8  # utilisation above which the devices themselves are the limit
MIN_JAIN_DIFFERENCE = 0.02
MAX_NAMED = 3  # other policies that are explained


class _PolicyFigures(Struct, frozen=True):
    """The figures of one policy, averaged over its seeds. Seconds are those of a mean call."""

    policy: str
    latency_s: float
    wait_s: float
    cold_rate: float
    cold_s: float
    swap_rate: float
    swap_s: float
    utilisation: float
    jain: float


def diagnose(runs: Sequence[RunReport], scenario: Scenario) -> list[str]:
    """Return sentences about the best policy, the reasons why others are slower, and what limits the best one."""
    figures = [_figures(own, scenario) for own in _by_policy(runs)]
    figures = sorted((each for each in figures if each.latency_s), key=lambda each: each.latency_s)
    if not figures:
        return ["No call ended, so there is nothing to compare."]
    best, others = figures[0], figures[1:]
    slower = [each for each in others if each.latency_s > best.latency_s * (1 + MIN_DIFFERENCE)]
    named = [*slower[: MAX_NAMED - 1], slower[-1]] if len(slower) > MAX_NAMED else slower
    said = [_winner(best, others)] if others else []
    return [*said, *(_reason(each, best) for each in named), *_limit(best, scenario)]


def _by_policy(runs: Sequence[RunReport]) -> Iterator[list[RunReport]]:
    for policy in dict.fromkeys(run.policy for run in runs):
        yield [run for run in runs if run.policy == policy]


def _figures(runs: Sequence[RunReport], scenario: Scenario) -> _PolicyFigures:
    def mean(values: Iterable[float | None]) -> float:
        return fmean(value or 0 for value in values)

    calls = mean(run.completed for run in runs) or 1
    device = next((each for each in scenario.devices if each.kind != CPU), scenario.devices[0])
    cold_s = mean(_cold_seconds(run, scenario.functions, device) for run in runs)
    swap_rate = mean(run.swap_ins for run in runs) / calls
    loads = [function.times_on(device).load_s or 0 for function in scenario.functions.values()]
    return _PolicyFigures(
        runs[0].policy,
        mean(run.latency_s.mean for run in runs),
        mean(run.wait_s.mean for run in runs),
        mean(run.cold_rate for run in runs),
        cold_s / calls,
        swap_rate,
        swap_rate * fmean(loads or [0]),
        mean(run.utilisation for run in runs),
        mean(run.fairness.jain for run in runs),
    )


def _cold_seconds(run: RunReport, functions: dict[str, FunctionSpec], device: DeviceSpec) -> float:
    """Return the seconds of all cold starts, from the declared times."""
    times = {name: functions[name].times_on(device) for name in run.per_function if name in functions}
    return sum(run.per_function[name].cold_starts * max(each.cold_s, each.load_s or 0) for name, each in times.items())


def _winner(best: _PolicyFigures, others: Sequence[_PolicyFigures]) -> str:
    close = [each.policy for each in others if each.latency_s <= best.latency_s * (1 + MIN_DIFFERENCE)]
    told = f"{best.policy} has the shortest mean latency, {best.latency_s:.3g} s"
    if close:
        told += f"; {' and '.join(close)} {'is' if len(close) == 1 else 'are'} within {MIN_DIFFERENCE:.0%}"
    fairest = max(others, key=lambda each: each.jain)
    if fairest.jain > best.jain + MIN_JAIN_DIFFERENCE:
        return (
            f"{told}. {fairest.policy} divides the devices more evenly (Jain {fairest.jain:.2f}, not {best.jain:.2f})."
        )
    return f"{told}. No other policy divides the devices more evenly (Jain {best.jain:.2f})."


def _reason(each: _PolicyFigures, best: _PolicyFigures) -> str:
    """Say why a policy is slower than the best one: starts, swap-ins, or the order of the calls."""
    causes = []
    if each.cold_s > best.cold_s + MIN_DIFFERENCE * best.latency_s:
        causes.append(f"cold starts: {each.cold_rate:.1%} of the calls, not {best.cold_rate:.1%}")
    if each.swap_s > best.swap_s + MIN_DIFFERENCE * best.latency_s:
        causes.append(f"swap-ins: {each.swap_rate:.1%} of the calls, not {best.swap_rate:.1%}")
    if not causes:
        causes.append("order: long calls run before short ones that wait")
    wait = f"a call waits {each.wait_s:.3g} s, not {best.wait_s:.3g} s"
    return (
        f"{each.policy} takes {each.latency_s / best.latency_s:.1f} times as long, by {' and '.join(causes)}; {wait}."
    )


def _limit(best: _PolicyFigures, scenario: Scenario) -> Iterator[str]:
    """Say what the calls of the best policy wait for."""
    part = best.wait_s / best.latency_s
    if part < SHORT_WAIT:
        yield f"Under {best.policy} calls wait for {part:.0%} of their time only. More devices would change little."
        return
    devices = [each for each in scenario.devices if each.kind != CPU] or scenario.devices
    has = sum(inf if each.memory_bytes is None else each.memory_bytes for each in devices)
    needed = sum(function.memory_bytes for function in scenario.functions.values())
    told = f"Under {best.policy} calls wait for {part:.0%} of their time, and devices are {best.utilisation:.0%} busy"
    if best.utilisation > BUSY:
        yield f"{told}: the load is what they wait for. Only more or faster devices shorten that."
    elif needed > has and best.swap_rate + best.cold_rate > MIN_DIFFERENCE:
        room = f"{needed / GIB:.3g} GiB of functions on {has / GIB:.3g} GiB of devices"
        yield f"{told}: memory is what they wait for ({room}). Try more device memory."
    elif best.cold_s > MIN_DIFFERENCE * best.latency_s:
        yield f"{told}: starts are what they wait for ({best.cold_rate:.1%} of the calls). Try a longer keep-alive."
    else:
        yield f"{told}: bursts are what they wait for, or the D = {devices[0].concurrency} calls that run at once."
