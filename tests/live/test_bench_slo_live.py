"""The parts of the benchmark `slo` that measure a real server."""

from pathlib import Path

import pytest

from aliquot_bench.environments import MeasurementError
from aliquot_bench.slo.batches_live import BatchPart
from aliquot_bench.slo.open_loop import TimedRequest, get, send_all, throughput
from aliquot_bench.slo.overload import OverloadPart
from aliquot_bench.slo.part import SloSizes

SIZES = SloSizes(Path(), live_s=1, live_rounds=1, live_round_s=0.3)


def test_an_overload_counts_every_call_once():
    part = OverloadPart(SIZES)
    part.run(lambda _: None)
    (table,) = part.tables()
    figures = {str(name): value for name, value in table.rows}
    assert figures["calls"] == figures["promised"] + figures["ran without a promise"] + figures["refused"]
    assert figures["promised"] > 0
    broken = sum(value for name, value in figures.items() if name.startswith("broken"))
    assert figures["kept"] + broken == figures["promised"]
    assert [goal.unit for goal in part.goals()] == ["%, at least", "ms, at most"]


def test_batches_and_kept_results_are_compared_with_calls_that_run_alone():
    part = BatchPart(SIZES)
    part.run(lambda _: None)
    batches, kept = part.goals()
    assert batches.value > 1
    assert kept.value > 0
    assert all(isinstance(value, float) and value > 0 for _, value in part.tables()[0].rows)


def test_an_open_loop_sends_each_request_at_its_time_whatever_the_answers_do(shared_server):
    requests = [TimedRequest(0.01 * number, get("/health")) for number in range(20)]
    replies = send_all(shared_server.url, requests)
    assert sorted(reply.request for reply in replies) == list(range(20))
    assert {reply.status for reply in replies} == {200}


def test_a_closed_loop_fails_on_an_answer_that_is_an_error(shared_server):
    with pytest.raises(MeasurementError, match="was answered with 404"):
        throughput(shared_server.url, [get("/nowhere")], 1, 1)
