"""Answers about decisions, slices of devices, and figures of functions, as the one who asks may see them."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import ceil

from msgspec import Struct

from aliquot.core.commands import Start
from aliquot.core.model import FlowKey
from aliquot.live.history.index.calls import COMPOSITION, CallTable, IndexedCall
from aliquot.live.history.index.decisions import Decision, DecisionLog
from aliquot.live.history.index.sandboxes import SandboxSlice, SandboxTable
from aliquot.live.history.index.searching import may_see
from aliquot.live.history.messages import DecisionList, DeviceSlices, FunctionFigures, Viewer
from aliquot.live.history.records import OTHERS

MAX_DECISIONS_SHOWN = 500
MAX_SLICES_SHOWN = 2000
_MIN_PART = 1 / 600  # of the time that is shown; shorter slices are joined with their neighbours
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class ShownDecision(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A decision in a list."""

    at: float
    kind: str
    namespace: str
    action: str
    reason: str
    sandbox: int | None = None
    activation_id: str = ""
    devices: tuple[str, ...] = ()
    room_for: str = ""


class DecisionsAnswer(Struct, frozen=True, rename="camel"):
    """The newest decisions that match."""

    decisions: list[ShownDecision]
    kinds: dict[str, int]  # how often each kind is among those that are kept
    kept: int
    complete: bool


def decisions_of(log: DecisionLog, query: DecisionList, *, complete: bool) -> DecisionsAnswer:
    """Return the decisions that match, the newest first. A namespace sees those about its own functions."""
    viewer = query.viewer
    found: list[ShownDecision] = []
    kinds: Counter[str] = Counter()
    kept = 0
    for decision in reversed(log.newest):
        if not viewer.is_operator and (decision.flow[0] != viewer.tenant or decision.at < viewer.since_s):
            continue
        kept += 1
        kinds[decision.kind] += 1
        if len(found) < min(query.limit, MAX_DECISIONS_SHOWN) and _decision_matches(query, decision):
            found.append(_shown_decision(decision, viewer))
    return DecisionsAnswer(found, dict(sorted(kinds.items())), kept, complete)


def _decision_matches(query: DecisionList, decision: Decision) -> bool:
    return (
        (not query.kind or decision.kind == query.kind)
        and (not query.name or query.name in decision.flow[1])
        and (not query.device or query.device in decision.devices)
        and (not query.call or decision.call == query.call)
    )


def _shown_decision(decision: Decision, viewer: Viewer) -> ShownDecision:
    room_for = decision.room_for
    hidden = room_for is not None and not viewer.is_operator and room_for[0] != viewer.tenant
    told = "" if room_for is None else OTHERS if hidden else "/".join(room_for)
    return ShownDecision(
        decision.at, decision.kind, *decision.flow, decision.reason, decision.sandbox, decision.call,
        decision.devices, told,
    )  # fmt: skip


# --- slices -----------------------------------------------------------------------------------------------


class ShownSlice(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A time in which a sandbox was active. Several short ones of the same kind are one."""

    begin: float
    end: float
    sandbox: int
    activity: str
    namespace: str
    action: str = ""
    activation_id: str = ""
    count: int = 1


class ShownDevice(Struct, frozen=True, rename="camel"):
    """A device with the slices of its sandboxes."""

    device: str
    slices: list[ShownSlice]
    busy: float  # seconds in which at least one sandbox ran
    left_out: int  # slices that were too many


class SlicesAnswer(Struct, frozen=True, rename="camel"):
    """All devices that did something in the time."""

    begin: float
    end: float
    devices: list[ShownDevice]
    complete: bool


def slices_of(table: SandboxTable, query: DeviceSlices, *, complete: bool) -> SlicesAnswer:
    """Return what sandboxes did in the time. A namespace sees other tenants' slices as those of `others`."""
    begin, end = query.begin_s, query.end_s
    by_device: defaultdict[str, list[SandboxSlice]] = defaultdict(list)
    for each in table.open_slices():
        if each.begin < end:
            for device in each.devices:
                by_device[device].append(each._replace(end=end))
    for each in reversed(table.slices):
        if each.end is not None and each.end > begin and each.begin < end:
            for device in each.devices:
                by_device[device].append(each)
    devices = [_device(name, sorted(slices), query) for name, slices in sorted(by_device.items())]
    return SlicesAnswer(begin, end, devices, complete)


def _device(device: str, slices: list[SandboxSlice], query: DeviceSlices) -> ShownDevice:
    shortest = (query.end_s - query.begin_s) * _MIN_PART
    shown: list[ShownSlice] = []
    last: dict[tuple[int, str], int] = {}
    for each in slices:
        one = _shown_slice(each, query)
        at = last.get((each.sandbox, one.activity))
        if at is not None:
            before = shown[at]
            is_short = one.end - one.begin < shortest and before.end - before.begin < 2 * shortest
            if is_short and one.begin - before.end < shortest / 2:
                shown[at] = ShownSlice(
                    before.begin, one.end, before.sandbox, before.activity, before.namespace, before.action,
                    count=before.count + 1,
                )  # fmt: skip
                continue
        last[each.sandbox, one.activity] = len(shown)
        shown.append(one)
    return ShownDevice(
        device, shown[-MAX_SLICES_SHOWN:], _covered(slices, query), max(0, len(shown) - MAX_SLICES_SHOWN)
    )


def _shown_slice(each: SandboxSlice, query: DeviceSlices) -> ShownSlice:
    begin, end = max(each.begin, query.begin_s), min(each.end or query.end_s, query.end_s)
    viewer = query.viewer
    if viewer.is_operator or (each.flow[0] == viewer.tenant and each.begin >= viewer.since_s):
        return ShownSlice(begin, end, each.sandbox, each.activity, *each.flow, each.call)
    return ShownSlice(begin, end, each.sandbox, each.activity, OTHERS)


def _covered(slices: Iterable[SandboxSlice], query: DeviceSlices) -> float:
    """Return how long at least one sandbox was active. The slices are in the order of their beginnings."""
    covered, until = 0.0, query.begin_s
    for each in slices:
        end = min(each.end or query.end_s, query.end_s)
        if end > until:
            covered += end - max(until, each.begin)
            until = end
    return round(covered, 6)


# --- figures of a function --------------------------------------------------------------------------------


class FiguresAnswer(Struct, frozen=True, rename="camel"):
    """The calls of a function in numbers. Times are seconds."""

    namespace: str
    action: str
    calls: int
    failed: int
    starts: dict[str, int]
    cold_causes: dict[str, int]
    latency: dict[str, float]
    wait: dict[str, float]
    run: dict[str, float]
    device_seconds: float
    devices: dict[str, int]
    since: float | None
    complete: bool


def figures_of(calls: CallTable, query: FunctionFigures, now_s: float, *, complete: bool) -> FiguresAnswer:
    """Sum up the calls of a function that arrived lately."""
    namespace = query.namespace or query.viewer.tenant
    wanted, since_s = FlowKey(namespace, query.name), now_s - query.last_s
    chosen = [
        call
        for call in calls.newest_first()
        if call.arrived >= since_s and call.flow == wanted and may_see(query.viewer, call)
    ]
    plain = [call for call in chosen if call.start != COMPOSITION]
    return FiguresAnswer(
        namespace,
        query.name,
        len(chosen),
        sum(call.failed for call in chosen),
        dict(Counter(call.start for call in plain if call.start)),
        dict(Counter(call.start_cause for call in plain if call.start not in {"", Start.WARM}).most_common(8)),
        _quantiles(call.duration_s for call in chosen),
        _quantiles(call.wait_s for call in plain),
        _quantiles(call.run_s for call in chosen),
        round(sum(_device_seconds(call) for call in plain), 6),
        dict(Counter(device for call in plain for device in call.devices).most_common(32)),
        min((call.arrived for call in chosen), default=None),
        complete,
    )


class SeriesAnswer(Struct, frozen=True):
    """Counts over time as columns. For the operator with the sums of each namespace."""

    step: int
    times: list[int]
    values: dict[str, list[float]]
    totals: dict[str, dict[str, float]]
    complete: bool


def _device_seconds(call: IndexedCall) -> float:
    return (call.run_s or 0.0) * len(call.devices)


def _quantiles(values: Iterable[float | None]) -> dict[str, float]:
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return {}
    found = {name: ordered[max(0, ceil(part * len(ordered)) - 1)] for name, part in _QUANTILES.items()}
    return {"mean": sum(ordered) / len(ordered), **found, "max": ordered[-1]}
