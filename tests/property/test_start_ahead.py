"""Sandboxes that are started ahead change nothing for other tenants, however wrong the forecast is."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import examples_divided_by

from aliquot.core.commands import Dispatch, Run, StartSandbox
from aliquot.core.events import DemandForecast, DemandRow, FunctionDeployed, HostMemorySet, SandboxStarted
from aliquot.core.units import GIB
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness, of_type

FUNCTIONS = [
    replace(function("small"), host_bytes=GIB),
    replace(function("large", memory_bytes=4 * GIB), host_bytes=GIB),
    replace(function("host", share=0), host_bytes=3 * GIB),
]
DEVICES = [
    device("gpu-1", concurrency=2, memory_bytes=9 * GIB),
    device("cpu-1", kind="cpu", concurrency=3, memory_bytes=None),
]
NAMES = st.sampled_from([spec.name for spec in FUNCTIONS])
MOVES = st.one_of(
    st.tuples(st.just("call"), NAMES),
    st.tuples(st.just("expect"), NAMES),
    st.tuples(st.just("forecast"), NAMES),
    st.just(("run", "")),
)

# Two large sandboxes fit beside ann's idle one, unless bob's unused one stays.
FULL_DEVICE = [("call", "small"), ("run", ""), ("expect", "small"), ("run", ""), ("call", "large"), ("call", "large")]


class TwoTenants:
    """A scheduler in which ann calls her functions, while bob's are started ahead at random and never called."""

    def __init__(self, policy, host_bytes):
        self.harness = Harness(policy, devices=DEVICES, provisioning="forecast")
        self.harness.send(HostMemorySet(host_bytes))
        deployed = [FunctionDeployed(tenant, spec) for tenant in ("ann", "bob") for spec in FUNCTIONS]
        self.harness.send(*deployed)
        self._starting, self._running = [], []

    def move(self, kind, name, *, forecasts):
        """Take one step, and return the dispatches in it."""
        harness = self.harness
        harness.now += 1
        if kind == "call":
            commands = harness.call(name, tenant="ann")
        elif kind == "expect":
            if forecasts:
                provisioner = harness.scheduler.provisioner
                provisioner.start(harness.flow(name, "bob"), 2, "it is wrong", now=harness.now)
            commands = harness.send()
        elif kind == "forecast":
            wrong = DemandForecast((DemandRow("bob", name, 1.0, 60, 0, 1, 3, 0),), valid_s=5)
            commands = harness.send(*([wrong] if forecasts else []))
        else:
            commands = self._run_all()
        self._starting += [start.sandbox for start in of_type(StartSandbox, commands)]
        self._running += of_type(Run, commands)
        return [(dispatch.invocation, dispatch.start, dispatch.place) for dispatch in of_type(Dispatch, commands)]

    def _run_all(self):
        """Let every start and every run end, and return the commands that follow."""
        starting, self._starting = self._starting, []
        commands = self.harness.send(*(SandboxStarted(sandbox) for sandbox in starting))
        running, self._running = [*self._running, *of_type(Run, commands)], []
        for run in running:
            commands += self.harness.finish(run.invocation)
        return [command for command in commands if command not in running]

    def residents(self):
        """Return the function and state of each of ann's sandboxes."""
        sandboxes = self.harness.scheduler.pool.sandboxes.values()
        return [(s.flow.key.function, s.place, s.state) for s in sandboxes if s.flow.key.tenant == "ann"]


@pytest.mark.parametrize("policy", ["fair_resident", "fcfs", "mqfq_sticky"])
@examples_divided_by(2)
@example(moves=FULL_DEVICE, host_gib=24)
@example(moves=[("forecast" if kind == "expect" else kind, name) for kind, name in FULL_DEVICE], host_gib=24)
@given(moves=st.lists(MOVES, max_size=60), host_gib=st.integers(4, 24))
def test_no_forecast_changes_the_dispatches_and_the_sandboxes_of_another_tenant(policy, moves, host_gib):
    with_forecasts, without = (TwoTenants(policy, host_gib * GIB) for _ in range(2))
    for kind, name in moves:
        assert with_forecasts.move(kind, name, forecasts=True) == without.move(kind, name, forecasts=False)
        assert with_forecasts.residents() == without.residents()
