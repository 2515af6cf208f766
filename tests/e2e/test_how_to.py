"""The how-to pages do what they say: their code is taken from the page and run."""

import os
import re

from command_line import run_here
from pages import DocumentPage

from aliquot.config import PolicySettings
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.testing import Harness, device, function
from aliquot.testing.chaos import ChaosShell
from aliquot.testing.harness import dispatched

PAGE = DocumentPage("how-to/write-a-policy.md")


def added_policy():
    """The class on the page, and the table with the page's line in it."""
    code, lines = PAGE.blocks("python")
    module = {}
    exec(compile(code, "write-a-policy.md", "exec"), module)  # noqa: S102 - it is our own page
    name, cls = re.search(r'^\s*"(\w+)": (\w+),\n', lines, re.MULTILINE).groups()
    assert f"from aliquot.policies.queueing.{name} import {cls}\n" in lines
    assert name not in QUEUEING
    return name, {**QUEUEING, name: module[cls]}


def run_lines(page, folder):
    """Run the commands of a page as they are printed, and return the output of the last one."""
    for words in page.commands():
        done = run_here(*words, cwd=folder, environment=dict(os.environ))
        assert done.code == 0, done.err
    return done.out


def test_the_lines_of_the_page_run_as_printed(tmp_path):
    (tmp_path / "mine.py").write_text(PAGE.blocks("python")[0])
    assert "LeastServed" in run_lines(PAGE, tmp_path)


def test_the_page_on_choosing_names_every_policy_and_its_lines_end_with_a_diagnosis(tmp_path):
    page = DocumentPage("how-to/choose-a-policy.md")
    told = run_lines(page, tmp_path)
    assert "has the shortest mean latency" in told
    assert [name for name in QUEUEING if f"`{name}`" not in page.text] == []


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
