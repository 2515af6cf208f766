"""Make a scenario for the simulator from recorded calls.

A run takes as long as it was measured, from the command to its end. Starts and loads take the median of the function on
the kind of device. Batches take the median of their size. Each function is the last version that was deployed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.fit import misfit
from aliquot.core.model import CPU, DeviceSpec, FlowKey, FunctionSpec, NodeSpec, Times
from aliquot.live.history.records import CallEnd
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.whatif.reading import RecordedWindow
from aliquot.whatif.recording import RecordedCall, Recording, median_of

_USED_ENDS = (CallEnd.COMPLETED, CallEnd.REFUSED)


def make_scenario(
    window: RecordedWindow, *, devices: int | None = None, weights: dict[str, float] | None = None
) -> Scenario:
    """Return the scenario of all calls that have ended with a result or a refusal. Raises `InputError`.

    `devices` is another number of accelerators, and `weights` replace those of the named tenants.
    """
    recording = window.recording
    calls = used_calls(recording)
    if not any(call.run_s is not None and call.arrived >= window.from_s for call in calls):
        raise InputError("--last: no call ended in this time; take a longer one, or call a function first")
    by_flow: defaultdict[FlowKey, list[RecordedCall]] = defaultdict(list)
    for call in calls:
        by_flow[call.flow].append(call)
    names = _names(by_flow)
    functions = {names[flow]: _function(recording, flow, of_flow, names[flow]) for flow, of_flow in by_flow.items()}
    machine = _machine(recording.devices.values(), devices)
    _check_fit(functions, machine)
    origin = calls[0].arrived
    typical = {flow: _typical_s(of_flow) for flow, of_flow in by_flow.items()}
    arrivals = [_arrival(call, functions[names[call.flow]], origin, typical[call.flow]) for call in calls]
    return Scenario(
        machine,
        functions,
        ListedWorkload(arrivals),
        {**recording.weights, **(weights or {})},
        host_memory_bytes=_host_bytes(recording.nodes.values()),
    )


def listed_functions(scenario: Scenario) -> list[FunctionSpec]:
    """Return the functions with their median run times, as a functions file needs them."""
    runs: defaultdict[str, list[float]] = defaultdict(list)
    for arrival in scenario.workload:
        if arrival.run_s is not None:
            runs[arrival.function].append(arrival.run_s)
    return [
        replace(function, times=replace(function.times, run_s=median(runs[name])))
        if function.times.run_s is None and runs[name]
        else function
        for name, function in scenario.functions.items()
    ]


def used_calls(recording: Recording) -> list[RecordedCall]:
    """Return the calls that are simulated: completed and refused ones of functions whose run time was measured."""
    ended = [call for call in recording.calls.values() if call.end in _USED_ENDS]
    timed = {call.flow for call in ended if call.run_s is not None}
    return [call for call in ended if call.flow in timed]


def _names(flows: Iterable[FlowKey]) -> dict[FlowKey, str]:
    """Return a name for each function. A name that two tenants use is preceded by the tenant's."""
    listed = list(flows)
    uses = Counter(flow.function for flow in listed)
    return {flow: flow.function if uses[flow.function] == 1 else f"{flow.tenant}/{flow.function}" for flow in listed}


def _function(recording: Recording, flow: FlowKey, calls: list[RecordedCall], name: str) -> FunctionSpec:
    deployed = recording.functions.get(flow, FunctionSpec(flow.function))
    kinds = list(dict.fromkeys(call.kind for call in calls if call.run_s is not None))
    times = replace(
        deployed.times,
        cold_s=median_of(recording.starts, flow) or deployed.times.cold_s,
        load_s=_load_s(recording, flow, deployed),
    )
    by_kind = dict(deployed.times_by_kind)
    if deployed.batch > 1 or len(kinds) > 1:
        times = _with_runs(times, calls)
        by_kind |= {kind: _with_runs(times, [call for call in calls if call.kind == kind]) for kind in kinds}
    for kind in kinds if by_kind else ():
        cold_s = median_of(recording.starts, flow, kind)
        if kind in by_kind and cold_s is not None:
            by_kind[kind] = replace(by_kind[kind], cold_s=cold_s)
    return replace(deployed, name=name, times=times, times_by_kind=by_kind, runs_ahead=False, datasets=())


def _load_s(recording: Recording, flow: FlowKey, deployed: FunctionSpec) -> float | None:
    if deployed.share == 0:
        return deployed.times.load_s
    return median_of(recording.loads, flow) if recording.loads else deployed.times.load_s


def _with_runs(times: Times, calls: list[RecordedCall]) -> Times:
    """Return the times with the median run time of each size of batch. One call alone takes no longer than a batch."""
    by_size: defaultdict[int, list[float]] = defaultdict(list)
    for call in calls:
        if call.run_s is not None:
            by_size[call.size].append(call.run_s)
    if not by_size:
        return times
    medians = {size: median(by_size[size]) for size in sorted(by_size)}
    alone_s = medians.pop(1, None)
    if alone_s is None:
        alone_s = min(medians.values())
    return replace(times, run_s=alone_s, batch_s={size: max(run_s, alone_s) for size, run_s in medians.items()})


def _typical_s(calls: list[RecordedCall]) -> float:
    return median(call.run_s for call in calls if call.run_s is not None)


def _arrival(call: RecordedCall, function: FunctionSpec, origin: float, typical_s: float) -> Arrival:
    """Return the call for the simulator. Its run time refers to the general times of its function."""
    run_s: float | None = typical_s if call.run_s is None else call.run_s
    if function.batch > 1:
        run_s = None  # by the size of its batch, then
    elif run_s is not None and call.kind in function.times_by_kind:
        there, general = function.times_by_kind[call.kind].run_s, function.times.run_s
        run_s = run_s * general / there if there and general else run_s
    asked = call.arrival
    return Arrival(
        call.arrived - origin,
        function.name,
        asked.tenant,
        run_s,
        asked.deadline_s,
        asked.cost_limit,
        asked.session,
        (),
        asked.late,
    )


def _machine(recorded: Iterable[DeviceSpec], count: int | None) -> list[DeviceSpec]:
    """Return the devices, with another number of accelerators if one is given. The first ones are repeated."""
    devices = [replace(device, node="") for device in recorded]
    if count is None:
        return devices
    accelerators = [device for device in devices if device.kind != CPU]
    if not accelerators:
        raise InputError("--devices: the server has no accelerators; leave it out")
    chosen = [replace(accelerators[index % len(accelerators)], name=f"gpu-{index}") for index in range(count)]
    return [*(device for device in devices if device.kind == CPU), *chosen]


def _host_bytes(nodes: Iterable[NodeSpec]) -> int | None:
    limits = [node.host_memory_bytes for node in nodes]
    return None if not limits or None in limits else sum(limit or 0 for limit in limits)


def _check_fit(functions: dict[str, FunctionSpec], devices: list[DeviceSpec]) -> None:
    for name, function in functions.items():
        reason = misfit(function, devices)
        if reason is not None:
            raise InputError(f"function {name} fits no device: {reason}")
