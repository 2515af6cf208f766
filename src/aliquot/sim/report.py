"""The report of a run: the figures that the JSON file contains."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.core.commands import Start
from aliquot.core.model import CPU, DeviceSpec, FlowKey
from aliquot.sim.fabric.figures import DataFigures
from aliquot.sim.fairness import jain_of_meters
from aliquot.sim.recorder import FlowRecord, RunRecorder
from aliquot.sim.statistics import Summary, rounded, summarise, variance


class GroupReport(msgspec.Struct):
    """Figures of one function or one tenant."""

    completed: int
    rejected: int
    latency_s: Summary
    wait_s: Summary
    cold_starts: int
    cold_rate: float


class FairnessReport(msgspec.Struct):
    """Fairness figures of a run. See `fairness.py`."""

    jain: float
    max_gap_s: float
    variance_of_means: float


class SloReport(msgspec.Struct):
    """Figures about calls with deadlines and cost limits. `attainment` is None if no call had a deadline."""

    deadlines: int
    met: int
    attainment: float | None
    promised: int = 0
    kept: int = 0  # promises
    broken: dict[str, int] = {}  # promises, by blame
    refused: dict[str, int] = {}  # calls, by cause
    cost: float = 0  # of all completed calls


class RunReport(msgspec.Struct):
    """All figures of one run. docs/reference/simulate.md explains each."""

    policy: str
    seed: int
    completed: int
    rejected: int
    latency_s: Summary
    wait_s: Summary
    cold_starts: int
    cold_rate: float
    swap_ins: int
    bytes_moved: int
    utilisation: float
    makespan_s: float
    fairness: FairnessReport
    slo: SloReport
    per_function: dict[str, GroupReport]
    per_tenant: dict[str, GroupReport]
    data: DataFigures | None = None  # None without files
    failed: int = 0  # calls that a lost node ran, or that fit on no other
    cached: int = 0  # calls that got the result of an equal one


def report(policy: str, seed: int, recorder: RunRecorder, devices: Sequence[DeviceSpec]) -> RunReport:
    """Compute the figures of a run.

    Utilisation is device time times share, divided by the time of all accelerators from first arrival to last end.
    """
    records = list(recorder.flows.values())
    total = _group(records)
    per_function = _groups(recorder, lambda key: key.function)
    means = [group.latency_s.mean for group in per_function.values() if group.latency_s.mean is not None]
    gaps = [meter.max_gap_s for meter in recorder.meters]
    accelerators = sum(device.kind != CPU for device in devices)
    span_s = recorder.last_finish_s - (recorder.first_arrival_s or 0)
    return RunReport(
        policy,
        seed,
        total.completed,
        total.rejected,
        total.latency_s,
        total.wait_s,
        total.cold_starts,
        total.cold_rate,
        swap_ins=sum(record.starts[Start.SWAP_IN] for record in records),
        bytes_moved=recorder.bytes_moved,
        utilisation=rounded(recorder.busy_s / (accelerators * span_s)) if span_s and accelerators else 0,
        makespan_s=rounded(recorder.last_finish_s),
        fairness=FairnessReport(
            rounded(jain_of_meters(recorder.meters)), rounded(max(gaps, default=0)), variance(means)
        ),
        slo=_slo(records),
        per_function=per_function,
        per_tenant=_groups(recorder, lambda key: key.tenant),
        data=recorder.data,
        failed=sum(record.failed for record in records),
        cached=sum(record.cached for record in records),
    )


def _slo(records: Sequence[FlowRecord]) -> SloReport:
    deadlines = sum(record.deadlines for record in records)
    met = sum(record.deadlines_met for record in records)
    broken: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for record in records:
        broken.update(record.broken)
        refused.update(record.refused)
    return SloReport(
        deadlines,
        met,
        rounded(met / deadlines) if deadlines else None,
        sum(record.promised for record in records),
        sum(record.kept for record in records),
        dict(sorted((+broken).items())),
        dict(sorted(refused.items())),
        rounded(sum(record.cost for record in records)),
    )


def to_json(runs: Iterable[RunReport]) -> bytes:
    """Encode reports as JSON. The same runs give the same bytes."""
    return msgspec.json.format(msgspec.json.encode({"runs": list(runs)}), indent=2) + b"\n"


def _groups(recorder: RunRecorder, name_of: Callable[[FlowKey], str]) -> dict[str, GroupReport]:
    members: dict[str, list[FlowRecord]] = {}
    for key, record in recorder.flows.items():
        members.setdefault(name_of(key), []).append(record)
    return {name: _group(members[name]) for name in sorted(members)}


def _group(records: list[FlowRecord]) -> GroupReport:
    latencies, waits = array("d"), array("d")
    for record in records:
        latencies.extend(record.latency_s)
        waits.extend(record.wait_s)
    dispatched = len(waits)
    cold = sum(record.starts[Start.COLD] for record in records)
    return GroupReport(
        len(latencies),
        sum(record.rejected for record in records),
        summarise(latencies),
        summarise(waits),
        cold,
        rounded(cold / dispatched) if dispatched else 0,
    )
