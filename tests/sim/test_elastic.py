"""Elastic devices in a simulation: they come a while after they are wanted, and leave when they are idle."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.clairvoyant import queueing_policies
from aliquot.sim.elastic import ElasticSettings, parse_elastic
from aliquot.sim.engine import Scenario, Simulation
from aliquot.sim.recorder import CallLine

SETTINGS = PolicySettings("fair_resident", admission="reservation")
DEVICES = [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(1, 5)]
RUN_S, LIMIT_S = 0.1, 0.4


def run(elastic, devices=DEVICES):
    """Simulate a busy minute for three devices between two quiet ones. Return the calls, and the device seconds."""
    quiet, busy = 0.5, 0.04
    arrivals, at = [], 0.0
    while at < 180:
        arrivals.append(Arrival(round(at, 3), "f", deadline_s=LIMIT_S))
        at += busy if 60 <= at < 120 else quiet
    functions = {"f": FunctionSpec("f", times=Times(RUN_S, 0, 0))}
    lines: list[CallLine] = []
    scenario = Scenario(devices, functions, ListedWorkload(arrivals), check=True, elastic=elastic)
    overview = scenario.workload.overview()
    simulation = Simulation(scenario, SETTINGS, overview, queueing_policies("fair_resident", scenario.workload), None,
                            lines.append)  # fmt: skip
    assert all(True for _ in simulation.moments())
    return lines, simulation.elastic.device_s


def test_devices_come_for_the_busy_time_and_leave_after_it():
    alone, _ = run(None, DEVICES[:1])
    static, _ = run(None)
    elastic, device_s = run(ElasticSettings("gpu", least=1, delay_s=5))
    in_time = [sum(bool(line.met) for line in lines) for lines in (alone, elastic, static)]
    assert in_time[0] < 0.8 * in_time[1]
    assert in_time[1] > 0.93 * in_time[2]
    assert 180 < device_s < 0.65 * 4 * 180
    assert not any(line.promised and not line.met for line in elastic)


def test_a_device_comes_only_after_its_delay():
    slow, _ = run(ElasticSettings("gpu", least=1, delay_s=50))
    quick, _ = run(ElasticSettings("gpu", least=1, delay_s=1))
    assert sum(bool(line.met) for line in slow) < 0.8 * sum(bool(line.met) for line in quick)


@pytest.mark.parametrize("text", ["gpu", "gpu=x", "gpu=9", "tpu=1", "cpu=1", "gpu=-1"])
def test_a_wrong_value_is_refused(text):
    with pytest.raises(InputError, match="--elastic"):
        parse_elastic(text, 1, [*DEVICES, DeviceSpec(CPU, CPU)])


def test_the_option_is_read():
    assert parse_elastic(None, 1, DEVICES) is None
    assert parse_elastic("gpu=0", 2.5, DEVICES) == ElasticSettings("gpu", 0, 2.5)
