"""Batches and kept results on a real server: each call has its own result, error and record."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from places import SUPPORT

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.sdk import errors
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data", "--batching", "greedy") as server:
        yield server
    assert not replay_file(server.data).differences


@pytest.fixture(scope="module")
def batched(server):
    """Yield the app, with each of its functions deployed and warm."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("ALIQUOT_DATA", str(server.data))
        patch.syspath_prepend(str(SUPPORT))
        sys.modules.pop("batched", None)
        import batched

        yield batched
        sys.modules.pop("batched", None)


def together(function, items):
    """Call the function with all items at once, while others of its runs go on. Return results and exceptions."""
    list(function.map([1, 1], concurrency=2, return_exceptions=True))  # its sandboxes are warm then
    return list(function.map(items, concurrency=len(items), return_exceptions=True))


def notes_of(record):
    return {pair["key"]: pair["value"] for pair in record["annotations"]}


def records_of(server, name):
    with server.client() as client:
        return client.get("activations", params={"name": f"batched.{name}", "limit": 100, "docs": "true"}).json()


def test_calls_that_wait_run_together_and_each_has_its_own_result(server, batched):
    results = together(batched.sizes, list(range(12)))
    assert [item for item, _ in results] == list(range(12))
    largest = max(size for _, size in results)
    assert largest > 2
    wait_until(lambda: len(records_of(server, "sizes")) >= 14, what="the records")
    batches = [record for record in records_of(server, "sizes") if notes_of(record).get("batchSize") == largest]
    assert len(batches) % largest == 0
    assert all(record["logs"][-1].endswith(f"ran {largest}") for record in batches)
    assert batched.sizes(7) == (7, 1)  # here it runs alone


def test_an_exception_in_an_items_place_fails_that_item_alone(batched):
    results = together(batched.careful, [1, -2, 3, -4])
    assert results[::2] == [1, 3]
    assert [str(error) for error in results[1::2]] == ["-2 is negative", "-4 is negative"]
    with pytest.raises(ValueError, match="-5 is negative"):
        batched.careful(-5)


def test_items_of_a_pure_function_run_again_alone_when_their_batch_raises(batched):
    results = together(batched.pure, [1, 2, 3, -4, 5, 6])
    assert [result[0] for number, result in enumerate(results) if number != 3] == [1, 2, 3, 5, 6]
    assert str(results[3]) == "a negative item among 1"


def test_all_items_get_the_error_of_their_batch_if_they_may_not_run_again(server, batched):
    results = together(batched.once, [-number for number in range(1, 9)])
    assert {type(result) for result in results} == {ValueError}
    assert max(int(str(result).rpartition(" ")[2]) for result in results) > 2
    wait_until(lambda: len(records_of(server, "once")) >= 10, what="the records")
    assert any("batchSize" in notes_of(record) for record in records_of(server, "once"))


def test_items_that_may_run_again_outlive_a_sandbox_that_dies(batched):
    results = together(batched.deadly, [1, 2, -3, 4, 5])
    assert [result for number, result in enumerate(results) if number != 2] == [1, 2, 4, 5]
    assert isinstance(results[2], errors.FunctionError)


def test_a_list_of_the_wrong_length_is_an_error_of_every_item(batched):
    results = together(batched.forgetful, [1, 2, 3, 4])
    assert all(isinstance(result, errors.FunctionError) for result in results)
    assert "one result for each of its" in str(results[0])


def test_a_batch_that_runs_out_of_memory_becomes_smaller(batched):
    for _ in range(10):
        results = together(batched.hungry, list(range(16)))
        assert all(isinstance(result, int) for result in results)
        if max(results) == 3:
            break
    assert max(results) == 3


def test_a_cancelled_item_leaves_its_batch_and_the_others_go_on(batched):
    list(batched.sizes.map([1, 1], concurrency=2))
    handles = [batched.sizes.spawn(number) for number in range(6)]
    handles[4].cancel()
    assert [handle.get(timeout=30)[0] for handle in handles if handle is not handles[4]] == [0, 1, 2, 3, 5]


ACTION = """
import time
def one(args):
    time.sleep(0.03)
    return {"twice": 2 * args["x"]}
def many(items):
    time.sleep(0.03)
    return [{"error": "odd"} if args["x"] == 13 else {"twice": 2 * args["x"]} for args in items]
"""


def test_a_batch_of_16_is_at_least_three_times_as_fast_as_single_calls(server):
    """Both have one sandbox, whose run takes 30 ms for one item as for sixteen."""
    limits = {"instances": 1}
    with server.client() as client:
        client.deploy("one", ACTION, main="one", limits=limits)
        client.deploy("many", ACTION, main="many", limits=limits, annotations=[{"key": "batch", "value": 16}])
    elapsed = {}
    for name in ("one", "many"):

        def call(x, name=name):
            with server.client() as client:
                return client.call(name, {"x": x})["response"]["result"]

        assert call(1) == {"twice": 2}
        with ThreadPoolExecutor(24) as threads:
            began = time.monotonic()
            results = list(threads.map(call, range(48)))
            elapsed[name] = time.monotonic() - began
        odd = {"error": "odd"} if name == "many" else {"twice": 26}
        assert results == [odd if x == 13 else {"twice": 2 * x} for x in range(48)]
    assert elapsed["one"] >= 3 * elapsed["many"], elapsed


def test_functions_that_cannot_have_batches_are_refused(server):
    batch = {"key": "batch", "value": 4}
    with server.client() as client:
        for body, reason in (
            ({"exec": {"kind": "nodejs:20", "code": "x"}, "annotations": [batch]}, "it takes Python functions alone"),
            (
                {
                    "exec": {"kind": "python:3.11", "code": "x"},
                    "annotations": [batch, {"key": "group", "value": "g"}],
                },
                "a function of a group runs its calls one by one",
            ),
            (
                {"exec": {"kind": "python:3.11", "code": "x"}, "annotations": [{"key": "batch", "value": 0}]},
                "a whole number from 1 to 65536",
            ),
        ):
            answer = client.put("actions/refused", json=body)
            assert answer.status_code == 400
            assert reason in answer.json()["error"]


def test_the_result_of_a_pure_function_is_used_again_within_its_time(server, batched):
    first = batched.remembered.remote("a")
    assert batched.remembered.remote("a") == first
    assert batched.remembered.remote("b") != first
    wait_until(lambda: len(records_of(server, "remembered")) >= 3, what="the records")
    assert sum(notes_of(record).get("cached", False) for record in records_of(server, "remembered")) == 1
