"""Simulations of a cluster of equal nodes, and of as many nodes that each have a scheduler of their own.

Jain's index counts times with two or more backlogged flows. On a cluster some flow is backlogged at almost any time, on
a node alone often none. So an index of one node and one of a cluster do not compare. Here the flows of separate nodes
are measured together, as if they were on one cluster.
"""

from collections.abc import Iterable
from typing import TypeAlias

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FlowKey, NodeSpec
from aliquot.core.units import GIB
from aliquot.sim.arrivals import ListedWorkload
from aliquot.sim.clairvoyant import queueing_policies
from aliquot.sim.engine import Scenario, Simulation, simulate
from aliquot.sim.fairness import FairnessMeter, FlowMeter, jain_of_meters
from aliquot.sim.report import RunReport, report
from aliquot.sim.workloads import WorkloadSpec, make_arrivals
from aliquot.testing.builders import function

NODE_LOAD, NODE_DURATION_S = 0.8, 60.0
DEVICES_PER_NODE = 4
TENANTS = 5  # a divisor of ten, so that a node's functions have the same tenants on any cluster
RUN_TIMES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # of a node's ten functions, twice each

ServiceChange: TypeAlias = tuple[float, FlowKey, str, float]  # time, flow, name of the meter's method, share


class ServiceLog(FairnessMeter):
    """Notes when the calls of a flow wait and run, so that several simulations can be measured together."""

    def __init__(self, key: FlowKey, changes: list[ServiceChange]) -> None:
        super().__init__({})
        self._key = key
        self._changes = changes

    def enqueued(self, flow: FlowMeter, now: float) -> None:
        self._changes.append((now, self._key, "enqueued", 0.0))

    def dequeued(self, flow: FlowMeter, now: float) -> None:
        self._changes.append((now, self._key, "dequeued", 0.0))

    def rate_changed(self, flow: FlowMeter, by: float, now: float) -> None:
        self._changes.append((now, self._key, "rate_changed", by))


def cluster(numbers: Iterable[int], duration_s: float) -> Scenario:
    """Return a scenario of nodes with these numbers, each with ten functions of its own, so that loads are equal."""
    numbered = list(numbers)
    nodes = [NodeSpec(f"n{number}") for number in numbered]
    devices = [
        DeviceSpec(f"{node.name}/gpu-{number}", memory_bytes=16 * GIB, concurrency=1, node=node.name)
        for node in nodes
        for number in range(DEVICES_PER_NODE)
    ]
    functions = {
        spec.name: spec
        for number in numbered
        for place, run_s in enumerate(2 * RUN_TIMES_S)
        for spec in [function(f"f{number}-{place}", run_s=run_s, cold_s=1, load_s=0.1)]
    }
    load = WorkloadSpec(load=NODE_LOAD, devices=len(devices), duration_s=duration_s, tenants=TENANTS)
    return Scenario(devices, functions, ListedWorkload(make_arrivals(functions, load)), nodes=nodes)


def simulate_cluster(nodes: int, policy: str, duration_s: float = NODE_DURATION_S) -> RunReport:
    """Simulate so many nodes under one scheduler."""
    scenario = cluster(range(nodes), duration_s)
    return report(policy, 0, simulate(scenario, PolicySettings(policy)), scenario.devices)


class SeparateNodes:
    """So many nodes, each with its own scheduler: calls per second and node, mean latency, and Jain's index."""

    def __init__(self, nodes: int, policy: str, duration_s: float = NODE_DURATION_S) -> None:
        self.nodes = nodes
        changes: list[ServiceChange] = []
        runs = [_run_alone(number, policy, duration_s, changes) for number in range(nodes)]
        self.completed = sum(run.completed for run in runs)
        self.per_second = sum(run.completed / run.makespan_s for run in runs) / nodes
        self.mean_s = sum((run.latency_s.mean or 0) * run.completed for run in runs) / self.completed
        self.jain = _jain_of_changes(changes)


def _run_alone(number: int, policy: str, duration_s: float, changes: list[ServiceChange]) -> RunReport:
    scenario = cluster([number], duration_s)
    workload = scenario.workload
    queueing = queueing_policies(policy, workload)
    simulation = Simulation(scenario, PolicySettings(policy), workload.overview(), queueing, None)
    for key, record in simulation.recorder.flows.items():
        record.fairness = ServiceLog(key, changes)
    for _ in simulation.moments():
        pass
    return report(policy, 0, simulation.recorder, scenario.devices)


def _jain_of_changes(changes: list[ServiceChange]) -> float:
    changes.sort(key=lambda change: change[0])  # stable, so changes of one simulation stay in order
    meter = FairnessMeter(dict.fromkeys((key for _, key, _, _ in changes), 1.0))
    for now, key, method, by in changes:
        flow = meter.flow(key)
        if method == "rate_changed":
            meter.rate_changed(flow, by, now)
        elif method == "enqueued":
            meter.enqueued(flow, now)
        else:
            meter.dequeued(flow, now)
    return jain_of_meters([meter])
