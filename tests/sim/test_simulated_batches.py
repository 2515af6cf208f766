"""The simulator runs batches, with run times by their size."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import FlowKey, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.fabric.storage import StorageSettings
from aliquot.sim.output_files import write_functions
from aliquot.sim.report import report
from aliquot.sim.traces import FunctionsFile
from aliquot.testing.builders import device

CURVE = Times(1, 0, 0, {4: 1.6})
NET = FunctionSpec("net", times=CURVE, times_by_kind={"gpu": CURVE}, batch=4)


def simulated(arrivals, *, function=NET, batching="greedy", storage=None):
    scenario = Scenario([device()], {"net": function}, ListedWorkload(arrivals), check=True)
    scenario.storage = storage or StorageSettings()
    recorder = simulate(scenario, PolicySettings("fcfs", batching=batching))
    return recorder, report("fcfs", 0, recorder, scenario.devices)


def latencies(recorder):
    return list(recorder.flows[FlowKey("default", "net")].latency_s)


def test_calls_that_wait_run_together_and_take_the_time_of_their_size():
    recorder, figures = simulated([Arrival(0, "net")] + [Arrival(0.5, "net")] * 4)
    assert latencies(recorder) == [1, 2.1, 2.1, 2.1, 2.1]
    assert figures.completed == 5
    assert recorder.busy_s == pytest.approx(1 + 1.6)  # each member is counted its part


def test_without_batches_they_run_one_after_another():
    recorder, _ = simulated([Arrival(0, "net")] * 3, batching="none")
    assert latencies(recorder) == [1, 2, 3]


def test_a_size_without_a_time_of_its_own_is_interpolated():
    recorder, _ = simulated([Arrival(0, "net")] + [Arrival(0.5, "net")] * 2)
    assert latencies(recorder) == [1, pytest.approx(1.7), pytest.approx(1.7)]


def test_a_batch_takes_as_long_as_its_longest_call():
    recorder, _ = simulated([Arrival(0, "net"), *(Arrival(0.5, "net", run_s=run_s) for run_s in (1, 2, 1, 1))])
    assert latencies(recorder)[1:] == [pytest.approx(0.5 + 3.2)] * 4


def test_a_batch_computes_when_all_its_calls_have_read_their_files():
    files = StorageSettings({("d", "a"): 100_000_000, ("d", "b"): 200_000_000}, 100_000_000, 0, predictor="none")
    reader = FunctionSpec("net", times=CURVE, batch=2, datasets=("d",))
    arrivals = [Arrival(0, "net"), Arrival(0.5, "net", reads=("d/a",)), Arrival(0.5, "net", reads=("d/b",))]
    recorder, _ = simulated(arrivals, function=reader, storage=files)
    assert latencies(recorder)[1:] == [pytest.approx(0.5 + 3 + 1.2, abs=0.1)] * 2


HEADER = "name,run_s,cold_s,memory_mib,batch,run_s@gpu/8,run_s@gpu/32\n"


def test_the_times_of_batches_are_columns_of_the_functions_file(tmp_path):
    path = tmp_path / "functions.csv"
    path.write_text(HEADER + "net,1,0,10,32,2,5\nplain,1,0,10,,,\n")
    functions = FunctionsFile(path).functions
    assert functions["net"].batch == 32
    assert functions["net"].times_on(device()).batch_run_s(16) == 3
    assert functions["plain"].batch == 1
    again = tmp_path / "again.csv"
    write_functions(functions.values(), again)
    assert FunctionsFile(again).functions["net"].times_on(device()).batch_run_s(16) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEADER + "net,1,0,10,1.5,2,5\n", "batch is 1.5"),
        (HEADER + "net,1,0,10,99999,2,5\n", "batch is '99999'"),
        (HEADER + "net,3,0,10,4,2,5\n", "run_s@gpu/8 is 2; it takes 3 or more"),
        (HEADER.replace("/8", "/x") + "net,1,0,10,4,2,5\n", "the column 'run_s@gpu/x' is not known"),
        (HEADER.replace("run_s@gpu/8", "cold_s@gpu/8") + "net,1,0,10,4,2,5\n", "the column 'cold_s@gpu/8'"),
    ],
)
def test_wrong_sizes_and_times_are_refused(tmp_path, text, complaint):
    path = tmp_path / "functions.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        FunctionsFile(path)
