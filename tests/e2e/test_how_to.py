"""The how-to pages do what they say: their code is taken from the page and run."""

import re

from places import DOCS

from aliquot.config import PolicySettings
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.testing import Harness, device, function
from aliquot.testing.chaos import ChaosShell
from aliquot.testing.harness import dispatched

PAGE = DOCS / "how-to" / "write-a-policy.md"


def added_policy():
    """The class on the page, and the table with the page's line in it."""
    code, line = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = {}
    exec(compile(code, str(PAGE), "exec"), module)  # noqa: S102 - it is our own page
    name, cls = re.fullmatch(r'\s*"(\w+)": (\w+),\n', line).groups()
    assert name not in QUEUEING
    return name, {**QUEUEING, name: module[cls]}


def test_the_policy_of_the_page_serves_the_least_served():
    name, table = added_policy()
    functions = [function("often"), function("rare", weight=2)]
    harness = Harness(name, devices=[device()], functions=functions, queueing=table, params={name: {"head_start": "1"}})
    commands = harness.call("often")
    harness.call("often", "often", "rare", "rare")
    order = []
    while commands:
        order += [number for number, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    assert order == ["0", "3", "4", "1", "2"]


def test_the_policy_of_the_page_survives_a_bad_day(monkeypatch):
    name, table = added_policy()
    monkeypatch.setitem(QUEUEING, name, table[name])
    functions = [function("a"), function("b", share=0.7, weight=2)]
    for seed in range(10):
        ChaosShell(name, devices=[device(concurrency=2)], functions=functions, seed=seed, keepalive="none").run_steps(
            100
        )


def test_the_policy_of_the_page_runs_in_the_simulator(monkeypatch):
    name, table = added_policy()
    monkeypatch.setattr("aliquot.sim.clairvoyant.SIMULATED_QUEUEING", table)
    arrivals = [Arrival(second / 2, name) for second in range(20) for name in ("a", "b")]
    functions = {name: function(name) for name in ("a", "b")}
    recorder = simulate(Scenario([device()], functions, ListedWorkload(arrivals), check=True), PolicySettings(name))
    assert sum(len(flow.latency_s) for flow in recorder.flows.values()) == 40
