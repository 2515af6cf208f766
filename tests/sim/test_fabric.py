"""Tests of datasets in the simulator: time to read, time hidden by prefetching, and wasted bytes."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.commands import CancelFetch, Fetch
from aliquot.core.errors import InputError
from aliquot.core.events import FetchEnded
from aliquot.core.model import FlowKey
from aliquot.sim import readers
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.fabric.fabric import SimulatedFabric
from aliquot.sim.fabric.predictors import PREDICTORS
from aliquot.sim.fabric.storage import StorageSettings, read_files
from aliquot.sim.output_files import write_arrivals, write_files, write_functions
from aliquot.sim.report import report, to_json
from aliquot.sim.traces import FunctionsFile, TraceFile
from aliquot.testing.builders import device, function

MB = 10**6
SECOND = 100 * MB  # bytes that the link moves in a second
READER = function("f", cold_s=0, load_s=0, run_s=1, datasets=("d",))


def storage(sizes, **more):
    return StorageSettings({("d", path): size for path, size in sizes.items()}, 100 * MB, **{"latency_s": 0, **more})


def run(arrivals, files, *, functions=(READER,), prefetching="none"):
    scenario = Scenario(
        [device(concurrency=9)],
        {function.name: function for function in functions},
        ListedWorkload(arrivals),
        check=True,
        storage=files,
    )
    recorder = simulate(scenario, PolicySettings("fcfs", prefetching=prefetching))
    return recorder, report("fcfs", 0, recorder, scenario.devices).data


def latencies(recorder, name="f"):
    return list(recorder.flows[FlowKey("default", name)].latency_s)


def test_a_call_waits_for_its_files_one_after_the_other_and_then_computes():
    files = storage({"a": SECOND, "b": 2 * SECOND}, latency_s=0.5)
    recorder, data = run([Arrival(0, "f", reads=("d/a", "d/b"))], files)
    assert latencies(recorder) == [0.5 + 1 + 0.5 + 2 + 1]
    assert data.opened == {"cached": 0, "prefetched": 0, "fetched": 2}
    assert (data.data_s.mean, data.hidden, data.moved_bytes) == (4, 0, 3 * SECOND)


def test_the_run_time_that_the_core_sees_includes_the_wait_for_files():
    scenario = Scenario(
        [device()], {"f": READER}, ListedWorkload([Arrival(0, "f", reads=("d/a",))]), storage=storage({"a": SECOND})
    )
    assert report("fcfs", 0, simulate(scenario, PolicySettings("fcfs")), scenario.devices).latency_s.mean == 2


def test_a_file_that_was_read_before_is_cached():
    arrivals = [Arrival(0, "f", reads=("d/a",)), Arrival(5, "f", reads=("d/a",))]
    recorder, data = run(arrivals, storage({"a": SECOND}))
    assert latencies(recorder) == [2, 1]
    assert data.opened["cached"] == 1


def test_two_waiting_calls_share_the_link_and_a_common_file_is_transferred_once():
    arrivals = [Arrival(0, "f", reads=("d/a",)), Arrival(0, "f", reads=("d/b",)), Arrival(0.5, "f", reads=("d/b",))]
    recorder, data = run(arrivals, storage({"a": SECOND, "b": SECOND}))
    assert latencies(recorder) == [3, 3, 2.5]
    assert data.moved_bytes == 2 * SECOND


def test_files_are_prefetched_while_the_sandbox_starts():
    slow = function("f", cold_s=3, load_s=0, run_s=1, datasets=("d",))
    arrivals = [Arrival(0, "f", reads=("d/a", "d/b"))]
    files = storage({"a": SECOND, "b": SECOND}, predictor="clairvoyant")
    recorder, data = run(arrivals, files, functions=[slow], prefetching="threshold")
    assert latencies(recorder) == [4]
    assert (data.hidden, data.wasted_bytes, data.opened["prefetched"]) == (1, 0, 2)


def test_a_late_prefetch_hides_the_part_that_has_arrived():
    arrivals = [Arrival(10, "f", session="s", reads=("d/a",))]
    files = storage({"a": 4 * SECOND}, predictor="clairvoyant", lead_s=3)
    recorder, data = run(arrivals, files, prefetching="threshold")
    assert latencies(recorder) == [pytest.approx(2, abs=0.01)]
    assert data.hidden == pytest.approx(0.75, abs=0.01)


def test_a_transfer_that_a_call_waits_for_overtakes_prefetches():
    arrivals = [Arrival(10, "f", session="s", reads=("d/large",)), Arrival(2, "g", reads=("e/now",))]
    other = function("g", cold_s=0, load_s=0, run_s=1, datasets=("e",))
    files = StorageSettings(
        {("d", "large"): 5 * SECOND, ("e", "now"): SECOND}, 100 * MB, 0, predictor="clairvoyant", lead_s=9
    )
    recorder, _ = run(arrivals, files, functions=[READER, other], prefetching="threshold")
    assert latencies(recorder, "g") == [2], "the prefetch that was under way stood still"
    assert latencies(recorder) == [1], "and was here in time all the same"


def test_a_prefetched_file_that_is_never_opened_is_wasted():
    queue = EventQueue()
    fabric = SimulatedFabric(storage({"a": SECOND, "b": SECOND}), [], queue)
    fabric.fetch(Fetch(1, "t", "s", "d", "a", ""), 0)
    fabric.fetch(Fetch(2, "t", "s", "d", "b", ""), 0)
    assert queue.take(9) == (0, [])  # the origin answers
    assert queue.take(9) == (1, [FetchEnded(1, 1)])
    fabric.cancel(CancelFetch(2, ""), 1.25)
    assert queue.take(9) == (1.25, [FetchEnded(2, 1.25)])
    assert fabric.figures().wasted_bytes == SECOND + SECOND // 4


def test_a_prefetch_that_a_call_waits_for_is_not_cancelled():
    queue = EventQueue()
    fabric = SimulatedFabric(storage({"a": SECOND}), [], queue)
    fabric.fetch(Fetch(1, "t", "s", "d", "a", ""), 0)
    queue.take(9)
    done = []
    fabric.read("1", Arrival(0, "f", reads=("d/a",)), 0.5, done.append)
    fabric.cancel(CancelFetch(1, ""), 0.75)
    assert queue.take(9) == (1, [FetchEnded(1, 1)])
    assert done == [1]
    assert fabric.figures().wasted_bytes == 0


def test_the_cache_is_bounded_and_keeps_open_files():
    long = function("long", cold_s=0, load_s=0, run_s=50, datasets=("d",))
    arrivals = [
        Arrival(0, "long", reads=("d/a",)),
        Arrival(10, "f", reads=("d/b",)),
        Arrival(20, "f", reads=("d/c",)),
        Arrival(30, "f", reads=("d/a",)),
        Arrival(40, "f", reads=("d/b",)),
    ]
    files = storage({"a": SECOND, "b": SECOND, "c": SECOND}, cache_bytes=2 * SECOND)
    recorder, _ = run(arrivals, files, functions=[READER, long])
    assert latencies(recorder) == [2, 2, 1, 2], "b went for c, though a was used longer ago"


def test_a_file_larger_than_the_cache_can_be_read():
    recorder, data = run([Arrival(0, "f", reads=("d/a", "d/a"))], storage({"a": SECOND}, cache_bytes=1))
    assert latencies(recorder) == [3]
    assert data.opened["fetched"] == 2


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_the_same_seed_gives_the_same_bytes(predictor):
    spec = readers.ReadersSpec(users=3, rounds=6, gap_s=30, shuffled=True, drawn_from=6)
    files = StorageSettings(readers.files(spec), cache_bytes=800 * MB, predictor=predictor, lead_s=2)
    runs = []
    for _ in range(2):
        scenario = Scenario(
            [device(concurrency=4)],
            readers.functions(),
            ListedWorkload(readers.arrivals(spec)),
            check=True,
            storage=files,
        )
        recorder = simulate(scenario, PolicySettings("fair_resident"))
        runs.append(to_json([report("", 0, recorder, scenario.devices)]))
    assert runs[0] == runs[1]


def data_of(spec, prefetching, **more):
    scenario = Scenario(
        [device(concurrency=16)],
        readers.functions(),
        ListedWorkload(readers.arrivals(spec)),
        storage=StorageSettings(readers.files(spec), cache_bytes=2**30, **more),
    )
    recorder = simulate(scenario, PolicySettings("fcfs", prefetching=prefetching))
    return report("", 0, recorder, scenario.devices).data


def test_repeated_reads_are_learned_and_a_longer_lead_hides_more():
    spec = readers.ReadersSpec(users=4, rounds=25, gap_s=240)
    hidden = [data_of(spec, "threshold", lead_s=lead_s) for lead_s in (0, 1, 3)]
    assert hidden[0].hidden < hidden[1].hidden < hidden[2].hidden
    assert hidden[2].hidden > 0.8, "but for the first rounds, from which it is learned"
    assert all(data.wasted <= 0.1 for data in hidden)


def test_unpredictable_reads_do_no_harm():
    spec = readers.ReadersSpec(users=4, rounds=25, gap_s=240, shuffled=True, parts=4, drawn_from=40)
    plain, guessed = data_of(spec, "none"), data_of(spec, "threshold", lead_s=3)
    assert guessed.data_s.mean <= 1.02 * plain.data_s.mean
    assert guessed.wasted <= 0.1


def test_a_generated_workload_is_read_as_it_was_written(tmp_path):
    spec = readers.ReadersSpec(users=2, rounds=2)
    paths = [tmp_path / name for name in ("A.csv", "F.csv", "D.csv")]
    write_arrivals(readers.arrivals(spec), paths[0], reads=True)
    write_functions(readers.functions().values(), paths[1])
    write_files(readers.files(spec), paths[2])
    functions, files = FunctionsFile(paths[1]).functions, read_files(paths[2])
    assert files == readers.files(spec)
    assert functions == readers.functions()
    assert list(TraceFile(paths[0], functions, files)) == list(readers.arrivals(spec))


@pytest.mark.parametrize(
    ("reads", "complaint"),
    [("d/other", "reads: 'd/other' is not in the files file"), ("e/a", "is of no dataset that f declares: d")],
)
def test_wrong_reads_are_refused_with_their_line(tmp_path, reads, complaint):
    path = tmp_path / "A.csv"
    path.write_text(f"time_s,function,reads\n0,f,{reads}\n")
    with pytest.raises(InputError, match="A.csv:2: .*" + complaint):
        TraceFile(path, {"f": READER}, {("d", "a"): 1, ("e", "a"): 1}).overview()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("d,a,x", ":2: mib is 'x'"),
        ("d/e,a,1", ":2: 'd/e', 'a' are not accepted names; it takes a dataset without /"),
        ("d,a,1\nd,a,1", ":3: d/a is listed twice"),
        ("", ":2: there are no files"),
    ],
)
def test_a_wrong_files_file_is_refused_with_the_reason(tmp_path, line, complaint):
    path = tmp_path / "D.csv"
    path.write_text(f"dataset,path,mib\n{line}\n" if line else "dataset,path,mib\n")
    with pytest.raises(InputError, match=complaint):
        read_files(path)
