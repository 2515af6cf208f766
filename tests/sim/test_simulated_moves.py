"""Moves of sandboxes in the simulator: a run goes on where it was, and nothing is lost under load."""

from random import Random

import pytest
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.core.events import MoveAsked
from aliquot.core.model import FlowKey
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, Simulation
from aliquot.testing.builders import device, function

HALF = function("half", share=0.5, run_s=4, cold_s=0, load_s=1)


def simulation(arrivals, functions, sharing="elastic", *, count=2):
    devices = [replace(device(f"gpu-{number}", concurrency=4), movable=True) for number in range(1, count + 1)]
    scenario = Scenario(devices, {f.name: f for f in functions}, ListedWorkload(arrivals), check=True)
    settings = PolicySettings("fair_resident", "none", sharing=sharing)
    return Simulation(scenario, settings, scenario.workload.overview(), QUEUEING, None)


@pytest.mark.parametrize("sharing", ["hard", "elastic"])
def test_a_run_that_is_moved_ends_when_it_would_have_ended(sharing):
    made = simulation([Arrival(0, "half"), Arrival(10, "half")], [HALF], sharing)
    made._queue.add(12, MoveAsked(1, "gpu-2"))
    for _ in made.moments():
        pass
    run_s = 2 if sharing == "elastic" else 4  # alone, it may have the whole device
    assert list(made.recorder.flows[FlowKey("default", "half")].latency_s) == [1 + run_s, run_s]
    assert made.scheduler.foresight.moves.done == 1
    assert made.scheduler.pool.sandboxes[1].device.spec.name == "gpu-2"


def test_a_thousand_moves_under_load_lose_no_call():
    random, functions = Random(1), [function(name, share=0.2, run_s=2, cold_s=0, load_s=0.2) for name in "abcdef"]
    arrivals = [
        Arrival(number / 4, random.choice("abcdef"), run_s=random.choice((0.5, 1, 5))) for number in range(2400)
    ]
    made = simulation(arrivals, functions, count=3)
    for number in range(5000):
        sandbox, to = random.randrange(1, 16), random.randrange(1, 4)
        made._queue.add(10 + number / 10, MoveAsked(sandbox, f"gpu-{to}"))
    for _ in made.moments():
        pass
    moves = made.scheduler.foresight.moves
    assert moves.done == moves.begun >= 1000
    assert made.ended == 2400
    assert not made.scheduler.invocations
