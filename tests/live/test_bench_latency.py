"""The latency benchmark: parsing wrk's report, computing figures from samples, and a real run of the baselines."""

import shutil
import sys
from pathlib import Path

import pytest

from aliquot.core.errors import InputError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError, prepare
from aliquot_bench.latency import LatencyBench, gateways, wrk
from aliquot_bench.latency.figures import (
    BARE,
    BEFORE,
    OURS,
    PlatformFigures,
    TargetResult,
    best_peer,
    gateway_table,
    goals,
    load_of_others,
    ratio,
    tables,
)
from aliquot_bench.latency.figures import p50_one_caller as p50
from aliquot_bench.latency.figures import per_second as rate
from aliquot_bench.latency.kinds import measure_kinds
from aliquot_bench.latency.peers import PEERS
from aliquot_bench.latency.picture import draw
from aliquot_bench.latency.process import ServerError, ServerProcess
from aliquot_bench.latency.targets import BaselineTarget, LoadSample, PingPongTarget
from aliquot_bench.latency.wrk import LoadEndpoint, LoadReport, parse

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed: apt-get install wrk")

REPORT = """Running 5s test @ http://127.0.0.1:9123/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.91ms    2.31ms  27.13ms   88.83%
    Req/Sec    23.34k     6.38k   30.91k    60.00%
  Latency Distribution
     50%  837.00us
     75%    2.42ms
     90%    4.80ms
     99%    1.05s
  116301 requests in 5.01s, 16.75MB read
"""
TAIL = "Requests/sec:  23214.66\nTransfer/sec:      3.34MB\n"


def sample(p50_ms, per_second, *, errors=0, p99_ms=None):
    crowd = LoadReport(p50_ms * 10, p99_ms or p50_ms * 30, per_second, requests=100, errors=errors)
    return LoadSample(LoadReport(p50_ms, p50_ms * 2, 1000 / p50_ms, requests=100, errors=0), crowd, cpu_us=50)


def measured(name, *samples, is_peer=False, reason=""):
    return TargetResult(name, "as installed", is_peer=is_peer, samples=dict(enumerate(samples)), reason=reason)


def test_a_report_of_wrk_is_read_in_milliseconds():
    assert parse(REPORT + TAIL) == LoadReport(0.837, 1050, 23214.66, 116301, errors=0)


def test_broken_connections_and_refusals_are_errors():
    report = REPORT + "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 5\n" + TAIL
    assert parse(report).errors == 15


def test_output_that_is_not_a_report_is_an_error():
    with pytest.raises(InputError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1")


def test_the_script_puts_requests_together_once():
    endpoint = LoadEndpoint("http://h", ("/a", "/b"), body='{"x":"\\n"}', headers={"Authorization": "Basic eA=="})
    script = wrk.lua(endpoint, in_turn=True)
    assert 'wrk.headers["Authorization"] = "Basic eA=="' in script
    assert script.count("wrk.format") == 1
    assert "function request" not in wrk.lua(endpoint, in_turn=False)


def test_requests_in_turn_have_the_headers_of_their_paths():
    endpoint = LoadEndpoint("http://h", ("/a", "/b"), method="GET", headers_by_path=({"X": "1"}, {"X": "2"}))
    script = wrk.lua(endpoint, in_turn=True)
    assert 'wrk.method = "GET"' in script
    assert all(f'["X"] = "{value}"' in script for value in (1, 2))
    assert script.count('["Content-Type"] = "application/json"') == 3  # of both, and the default


@needs_wrk
@pytest.mark.long
def test_all_kinds_of_calls_are_measured():
    found = {one.kind: one for one in measure_kinds(1)}
    assert len(found) == 6
    assert all(one.per_second > 0 and one.cpu_us for one in found.values())
    rows = tables([measured(OURS, sample(1, 100))], PlatformFigures(), "title", list(found.values()))[-1].rows
    assert [row[0] for row in rows] == list(found)


@needs_wrk
@pytest.mark.long
def test_processor_time_is_told_apart_by_process(monkeypatch):
    monkeypatch.setattr(gateways, "COUNTS", (1, 2))
    one, two = gateways.measure_gateways(1, 1, lambda _: None)
    assert (one.gateways, two.gateways) == (1, 2)
    assert one.gateways_us == 0
    assert min(one.server_us, one.others_us, two.server_us, two.gateways_us, two.others_us) > 0
    first, second = gateway_table([one, two]).rows
    assert first[:3] == ["1", one.server_us, None]
    assert second[4] == two.server_us + two.gateways_us + two.others_us


def test_without_wrk_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="apt-get install wrk"):
        wrk.check_wrk()


def test_ratios_are_taken_within_a_round_and_only_where_both_took_part():
    ours = measured(OURS, sample(1, 100), sample(8, 100), sample(3, 100))
    bare = measured(BARE, sample(1, 100), sample(4, 100))
    assert ratio(ours, bare, p50) == 1.5
    assert ratio(ours, measured(BARE), p50) is None


def test_a_target_that_answered_with_errors_has_no_figures():
    peer = measured("peer", is_peer=True)
    peer.add(0, sample(1, 9000, errors=3))
    other = measured("other", sample(1, 100), is_peer=True)
    assert not peer.is_valid
    assert best_peer([peer, other]) is other
    left_out = tables([peer, other], PlatformFigures(), "title")[-1]
    assert left_out.rows == [["peer", "", "void: 3 of its answers were errors"]]


def test_goals_compare_with_the_floor_and_the_best_peer():
    targets = [
        measured(BARE, sample(0.2, 14_000)),
        measured(OURS, sample(0.3, 7000)),
        measured("slow", sample(9, 150), is_peer=True),
        measured("fast", sample(1, 2000), is_peer=True),
        measured("broken", is_peer=True, reason="does not install: no wheel"),
    ]
    extras = PlatformFigures(0.8, 60, 80, 0.95, 7000, 6650, cold_ms=6, cold_init_ms=3, torch_cold_ms=61)
    by_name = {goal.name: goal for goal in goals(targets, extras)}
    assert by_name["requests/s with 32 callers, against the best peer (fast)"].value == 3.5
    unmet = [name for name, goal in by_name.items() if not goal.met]
    assert unmet == ["cold start with torch: the whole first call"]


def test_medians_stand_beside_their_spread_and_the_earlier_version():
    ours = measured(OURS, sample(0.3, 7000), sample(0.4, 9000), sample(0.2, 8000))
    before = measured(BEFORE, sample(0.5, 6000))
    compared, own = tables([before, ours], PlatformFigures(idle_mb=60), "title", before=PlatformFigures(idle_mb=70))
    assert [row[5] for row in compared.rows] == [6000, "8000 (7000 to 9000)"]
    assert [row[2] for row in compared.rows] == [0.5, "0.3 (0.2 to 0.4)"]
    assert own.columns == ["", "median", "before"]
    assert ["server memory idle, MB", 60, 70] in own.rows
    (alone,) = tables([ours], PlatformFigures(idle_mb=60), "title")[1:]
    assert ["server memory idle, MB", 60] in alone.rows


@needs_wrk
def test_an_earlier_version_needs_an_interpreter_that_has_it(tmp_path):
    for python in (tmp_path / "none", Path(shutil.which("false"))):
        with pytest.raises(InputError, match="--before: "):
            LatencyBench(BenchRequest(tmp_path, before=python))
    bench = LatencyBench(BenchRequest(tmp_path, quick=True, before=Path(sys.executable)))
    assert bench.steps == LatencyBench(BenchRequest(tmp_path, quick=True)).steps + 2


def test_what_was_not_measured_is_not_met():
    assert not any(goal.met for goal in goals([measured(OURS, reason="ended with 1")], PlatformFigures()))


def test_every_peer_says_how_it_runs_and_has_one_worker(tmp_path):
    names = [peer.name for peer in PEERS]
    assert len(set(names)) == len(names)
    for peer in PEERS:
        compile(peer.program, peer.name, "exec")
        assert peer.settings
        assert "8123" in " ".join(peer.start(tmp_path, tmp_path / "service.py", 8123))
        assert not any(requirement == "torch" for requirement in peer.requirements), "unpinned, it brings gigabytes"


def test_an_environment_that_cannot_be_made_names_its_reason(tmp_path):
    with pytest.raises(MeasurementError, match="/no/python"):
        prepare(tmp_path / "peer", ["anything"], lambda _: None, "/no/python")


def test_the_error_about_a_server_that_ends_early_has_its_last_output(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('no such port')"]
    with ServerProcess(command, tmp_path) as server, pytest.raises(ServerError, match="no such port"):
        server.wait_until(lambda: False)


def test_nothing_of_a_stopped_server_is_left(tmp_path):
    """This includes a process that started a session of its own."""
    child = "import subprocess, sys, time; print('up', flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    with ServerProcess([sys.executable, "-c", code + ".wait()"], tmp_path) as server:
        server.wait_until(lambda: "up" in server.last_output())
        assert len(server.processes()) == 2
    assert server.processes() == []


@pytest.mark.long
@needs_wrk
def test_the_baselines_answer_and_are_measured(tmp_path):
    targets = [BaselineTarget("bare", BARE, "uvicorn"), BaselineTarget("hop", "hop", "uvicorn"), PingPongTarget()]
    found = [measured(target.name, target.measure(1)) for target in targets]
    assert all(target.is_valid and ratio(target, target, rate) == 1 for target in found)
    typical, worst = load_of_others(found)
    assert 0 <= typical <= worst <= 1
    draw(found, tmp_path / "latency.png")
    assert (tmp_path / "latency.png").stat().st_size > 0


def test_a_peers_environment_that_is_being_replaced_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    folder, steps = tmp_path / "peer", []
    (folder / "lib").mkdir(parents=True)
    (folder / "aliquot-installed").write_text(f"{sys.executable}\nold==1")

    def interrupted(command):
        steps.append(command)
        raise MeasurementError("interrupted")

    monkeypatch.setattr("aliquot_bench.environments.run", interrupted)
    assert prepare(folder, ["old==1"], lambda _: None, sys.executable) == folder
    for requirement in ("new==2", "old==1"):
        with pytest.raises(MeasurementError):
            prepare(folder, [requirement], lambda _: None, sys.executable)
    assert len(steps) == 2, "the old one is installed anew"
