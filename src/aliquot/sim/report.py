"""The figures of a run, as the JSON file has them."""

from array import array
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.core.commands import Start
from aliquot.core.model import CPU, DeviceSpec, FlowKey
from aliquot.sim.fabric.account import DataFigures
from aliquot.sim.fairness import jain
from aliquot.sim.recorder import FlowRecord, Recorder
from aliquot.sim.statistics import Summary, summarise, tidy, variance


class Group(msgspec.Struct):
    """What is reported of one function, or of one tenant."""

    completed: int
    rejected: int
    latency_s: Summary
    wait_s: Summary
    cold_starts: int
    cold_rate: float


class Fairness(msgspec.Struct):
    jain: float
    max_gap_s: float
    variance_of_means: float


class Slo(msgspec.Struct):
    """Of the calls that had a deadline; None where none had."""

    deadlines: int
    met: int
    attainment: float | None


class RunReport(msgspec.Struct):
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
    fairness: Fairness
    slo: Slo
    per_function: dict[str, Group]
    per_tenant: dict[str, Group]
    data: DataFigures | None = None  # where there are files to read


def report(policy: str, seed: int, recorder: Recorder, devices: Sequence[DeviceSpec]) -> RunReport:
    """Utilisation is what ran, by share, of what all accelerators could have run from first arrival to last finish."""
    records = list(recorder.flows.values())
    total = _group(records)
    per_function = _groups(recorder, lambda key: key.function)
    means = [group.latency_s.mean for group in per_function.values() if group.latency_s.mean is not None]
    gaps = [meter.max_gap_s for meter in recorder.meters]
    accelerators = sum(device.kind != CPU for device in devices)
    span_s = recorder.last_finish_s - (recorder.first_arrival_s or 0)
    deadlines = sum(record.deadlines for record in records)
    met = sum(record.deadlines_met for record in records)
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
        utilisation=tidy(recorder.busy_s / (accelerators * span_s)) if span_s and accelerators else 0,
        makespan_s=tidy(recorder.last_finish_s),
        fairness=Fairness(tidy(jain(recorder.meters)), tidy(max(gaps, default=0)), variance(means)),
        slo=Slo(deadlines, met, tidy(met / deadlines) if deadlines else None),
        per_function=per_function,
        per_tenant=_groups(recorder, lambda key: key.tenant),
        data=recorder.data,
    )


def to_json(runs: Iterable[RunReport]) -> bytes:
    """The same runs give the same bytes."""
    return msgspec.json.format(msgspec.json.encode({"runs": list(runs)}), indent=2) + b"\n"


def _groups(recorder: Recorder, name_of: Callable[[FlowKey], str]) -> dict[str, Group]:
    members: dict[str, list[FlowRecord]] = {}
    for key, record in recorder.flows.items():
        members.setdefault(name_of(key), []).append(record)
    return {name: _group(members[name]) for name in sorted(members)}


def _group(records: list[FlowRecord]) -> Group:
    latencies, waits = array("d"), array("d")
    for record in records:
        latencies.extend(record.latency_s)
        waits.extend(record.wait_s)
    dispatched = len(waits)
    cold = sum(record.starts[Start.COLD] for record in records)
    return Group(
        len(latencies),
        sum(record.rejected for record in records),
        summarise(latencies),
        summarise(waits),
        cold,
        tidy(cold / dispatched) if dispatched else 0,
    )
