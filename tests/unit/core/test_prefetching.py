"""The rules of the prefetcher, one by one, as events in and commands out."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.commands import CancelFetch, Fetch, Predict
from aliquot.core.errors import EventError
from aliquot.core.events import (
    DatasetRemoved,
    FetchEnded,
    FilesPredicted,
    FunctionDeployed,
    FunctionRemoved,
    LikelyFile,
    SessionBegan,
    SessionEnded,
)
from aliquot.core.prefetching import backoff
from aliquot.core.units import MIB
from aliquot.live.invocations.journal import snapshot
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of_type


def reading(*tenants, prefetching="threshold", **params):
    """Make a scheduler with a function `train` of each tenant that reads the dataset `d`."""
    harness = Harness(
        devices=[device(concurrency=4)],
        prefetching=prefetching,
        params={prefetching: {name: str(value) for name, value in params.items()}},
    )
    for tenant in tenants or ("default",):
        harness.send(FunctionDeployed(tenant, function("train", datasets=("d",))))
    return harness


def likely(path, probability=0.9, size=MIB, dataset="d"):
    return LikelyFile(dataset, path, size, probability)


def predicted(*files, tenant="default", session="s", model="markov2"):
    return FilesPredicted(tenant, session, model, files)


def paths(commands):
    return [command.path for command in of_type(Fetch, commands)]


def test_a_session_that_begins_asks_for_a_prediction():
    harness = reading()
    assert harness.send(SessionBegan("default", "s")) == [Predict("default", "s", "", "the session began")]


def test_a_session_of_a_tenant_without_datasets_asks_for_nothing():
    harness = reading()
    assert harness.send(SessionBegan("other", "s")) == []


def test_a_call_asks_for_its_session_or_else_for_its_function():
    harness = reading()
    assert of_type(Predict, harness.call("train", session="s")) == [
        Predict("default", "s", "train", "a call of train has come")
    ]
    assert of_type(Predict, harness.call("train")) == [
        Predict("default", "function/train", "train", "a call of train has come")
    ]


def test_a_call_of_a_function_without_datasets_asks_for_nothing():
    harness = Harness(devices=[device()], functions=[function("f")])
    assert of_type(Predict, harness.call("f", session="s")) == []


def test_without_prefetching_nothing_is_asked():
    harness = reading(prefetching="none")
    assert of_type(Predict, [*harness.send(SessionBegan("default", "s")), *harness.call("train")]) == []


def test_one_prediction_is_pending_at_a_time_and_the_next_is_asked_for_after_it():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    assert of_type(Predict, harness.call("train", session="s")) == []
    assert of_type(Predict, harness.send(predicted())) == [Predict("default", "s", "train", "a call of train has come")]
    assert of_type(Predict, harness.send(predicted())) == []


def test_a_prediction_that_never_comes_does_not_block_the_next():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    assert of_type(Predict, harness.call("train", session="s", at=60)) != []


def test_likely_files_are_fetched_most_likely_first_with_the_reason():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    fetches = harness.send(predicted(likely("b", 0.8), likely("a", 0.93), likely("c", 0.75), likely("d", 0.2)))
    assert fetches == [
        Fetch(1, "default", "s", "d", "a", "P 0.93 of being opened, by markov2"),
        Fetch(2, "default", "s", "d", "b", "P 0.80 of being opened, by markov2"),
    ]


def test_among_about_equally_likely_files_the_models_order_holds():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    assert paths(harness.send(predicted(likely("soon", 0.96), likely("later", 0.99), likely("then", 0.97)))) == [
        "soon",
        "later",
        "then",
    ]


def test_at_most_top_n_files_are_fetched():
    harness = reading(top_n=2)
    harness.send(SessionBegan("default", "s"))
    assert paths(harness.send(predicted(likely("a"), likely("b"), likely("c")))) == ["a", "b"]


def test_no_more_bytes_than_the_budget_are_in_flight_and_an_end_lets_the_next_begin():
    harness = reading(budget_mib=4)  # a tenant may have half
    harness.send(SessionBegan("default", "s"))
    assert paths(harness.send(predicted(likely("a"), likely("b"), likely("c"), likely("e")))) == ["a", "b"]
    assert paths(harness.send(FetchEnded(1, 0.1))) == ["c"]


def test_a_file_larger_than_the_budget_is_fetched_alone():
    harness = reading(budget_mib=4)
    harness.send(SessionBegan("default", "s"))
    assert paths(harness.send(predicted(likely("a", 0.95), likely("large", 0.9, 9 * MIB), likely("b", 0.8)))) == ["a"]
    assert paths(harness.send(FetchEnded(1, 0.1))) == ["large"]
    assert paths(harness.send(FetchEnded(2, 0.1))) == ["b"]


def test_one_tenants_predictions_do_not_starve_another():
    harness = reading("ann", "bob", budget_mib=4)
    harness.send(SessionBegan("ann", "s"), SessionBegan("bob", "s"))
    harness.send(predicted(*[likely(f"a{number}") for number in range(16)], tenant="ann"))
    assert paths(harness.send(predicted(likely("b0"), likely("b1"), likely("b2"), tenant="bob"))) == ["b0", "b1"]


def test_tenants_take_turns():
    harness = reading("ann", "bob", "eve", budget_mib=4)
    harness.send(*(SessionBegan(tenant, "s") for tenant in ("ann", "bob", "eve")))
    predictions = [
        predicted(*(likely(f"{tenant}{number}") for number in range(3)), tenant=tenant)
        for tenant in ("ann", "bob", "eve")
    ]
    order = paths(harness.send(*predictions))
    for number in range(1, 6):
        order += paths(harness.send(FetchEnded(number, 0.1)))
    assert order == ["ann0", "bob0", "eve0", "ann1", "bob1", "eve1", "ann2", "bob2", "eve2"]


def test_a_tenants_sessions_take_turns():
    harness = reading(budget_mib=2)  # one file of one tenant at a time
    harness.send(SessionBegan("default", "s"), SessionBegan("default", "t"))
    first = harness.send(
        predicted(likely("s0"), likely("s1"), session="s"), predicted(likely("t0"), likely("t1"), session="t")
    )
    order = paths(first)
    for number in (1, 2, 3):
        order += paths(harness.send(FetchEnded(number, 0.1)))
    assert order == ["s0", "t0", "s1", "t1"]


def test_a_file_that_two_audiences_want_is_fetched_once_and_cancelled_when_neither_does():
    harness = reading("ann", "bob")
    harness.send(SessionBegan("ann", "s"), SessionBegan("bob", "s"))
    assert paths(harness.send(predicted(likely("x"), tenant="ann"), predicted(likely("x"), tenant="bob"))) == ["x"]
    assert harness.send(SessionEnded("ann", "s")) == []
    assert harness.send(SessionEnded("bob", "s")) == [CancelFetch(1, "its session ended")]
    assert harness.send(FetchEnded(1, 0.1)) == []


def test_a_new_prediction_replaces_the_old_one():
    harness = reading(budget_mib=4)
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a"), likely("b"), likely("c")))
    cancelled = harness.send(predicted(likely("b"), likely("e"), model="lstm"))
    assert cancelled == [CancelFetch(1, "lstm does not expect it any more")]
    assert paths(harness.send(FetchEnded(1, 0.1))) == ["e"]


def test_a_fetch_is_not_cancelled_when_its_file_becomes_a_little_less_likely():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a", 0.8)))
    assert harness.send(predicted(likely("a", 0.6))) == []
    assert harness.send(predicted(likely("a", 0.5))) == [CancelFetch(1, "markov2 does not expect it any more")]


def test_a_small_file_needs_less_probability_when_its_wait_is_mostly_latency():
    harness = reading(prefetching="expected_benefit", latency_ms=2, bandwidth_mb_s=100, price=3)
    harness.send(SessionBegan("default", "s"))
    files = [likely("large", 0.74, 10**9), likely("larger", 0.76, 10**9), likely("small", 0.2, 10**4)]
    assert harness.send(predicted(*files)) == [
        Fetch(
            *(1, "default", "s", "d", "larger"),
            "P 0.76 of being opened, by markov2: it would save 10 s for 10 s of the link",
        ),
    ]
    assert paths(harness.send(FetchEnded(1, 10))) == ["small"], "the larger one was more than the budget"


def test_a_cancelled_file_that_is_wanted_again_begins_after_its_end_is_reported():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    harness.send(predicted())
    assert harness.send(predicted(likely("a"))) == []
    assert paths(harness.send(FetchEnded(1, 0.1))) == ["a"]


def test_a_cancelled_file_must_be_likely_enough_to_begin_again():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    harness.send(predicted())
    harness.send(predicted(likely("a")))
    harness.send(predicted(likely("a", 0.6)))  # enough to continue a fetch
    assert harness.send(FetchEnded(1, 0.1)) == []


def test_a_cancelled_fetch_counts_until_its_end_is_reported():
    harness = reading(budget_mib=2)
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    assert paths(harness.send(predicted(likely("b")))) == []
    assert paths(harness.send(FetchEnded(1, 0.1))) == ["b"]


def test_a_prediction_for_an_ended_session_is_ignored():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    assert harness.send(SessionEnded("default", "s"), predicted(likely("a"))) == []
    assert harness.send(predicted(likely("a"))) == []


def test_a_session_that_ends_at_the_time_of_its_prediction_fetches_nothing():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    assert harness.send(predicted(likely("a")), SessionEnded("default", "s")) == []


def test_removing_a_function_cancels_its_fetches():
    harness = reading()
    harness.run_all(harness.call("train"))
    harness.send(predicted(likely("a"), session="function/train"))
    assert of_type(CancelFetch, harness.send(FunctionRemoved("default", "train"))) == [
        CancelFetch(1, "its function was removed")
    ]


def test_files_that_no_function_of_the_tenant_reads_any_more_are_cancelled_and_not_fetched_again():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    changed = harness.send(FunctionDeployed("default", function("train", datasets=("e",))))
    assert changed == [CancelFetch(1, "no function of default reads d any more")]
    harness.send(FetchEnded(1, 0.1))
    assert harness.send(predicted(likely("a"))) == []


def test_removing_a_dataset_cancels_its_fetches():
    harness = reading("ann", "bob")
    harness.send(SessionBegan("ann", "s"), SessionBegan("bob", "s"))
    harness.send(predicted(likely("x"), tenant="ann"), predicted(likely("x"), likely("y"), tenant="bob"))
    gone = harness.send(DatasetRemoved("d"))
    assert gone == [CancelFetch(1, "dataset d was removed"), CancelFetch(2, "dataset d was removed")]


def test_a_file_that_could_not_be_fetched_is_delayed_for_longer_each_time():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    for number, wait_s in enumerate((10, 20, 40), 1):
        assert paths(harness.send(predicted(likely("a")))) == ["a"]
        assert harness.send(FetchEnded(number, 0.1, "the origin is down")) == []
        assert harness.send(predicted(likely("a")), at=harness.now + wait_s - 1) == []
        harness.now += 1
    harness.send(predicted(likely("a")))
    harness.send(FetchEnded(4, 0.1))
    assert paths(harness.send(predicted(likely("a")))) == ["a"], "it came: what was before does not count"


def test_after_several_failures_in_a_row_the_whole_dataset_is_delayed():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(*[likely(f"a{number}") for number in range(backoff.MAX_DATASET_FAILURES)]))
    harness.send(*[FetchEnded(number, 0.1, "down") for number in range(1, backoff.MAX_DATASET_FAILURES + 1)])
    assert harness.send(predicted(likely("other"))) == []
    assert paths(harness.send(predicted(likely("other")), at=10)) == ["other"]


def test_a_dataset_that_is_replaced_is_tried_at_once():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    harness.send(FetchEnded(1, 0.1, "access denied"), DatasetRemoved("d"))
    assert paths(harness.send(predicted(likely("a")))) == ["a"]


@pytest.mark.parametrize(("probability", "size"), [(1.1, 1), (-0.1, 1), (float("nan"), 1), (0.9, -1)])
def test_an_impossible_prediction_changes_nothing(probability, size):
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    with pytest.raises(EventError, match="is impossible"):
        harness.send(predicted(likely("b", probability, size)))
    assert harness.send() == []


def test_a_fetch_ends_once():
    harness = reading()
    harness.send(SessionBegan("default", "s"))
    harness.send(predicted(likely("a")))
    harness.send(FetchEnded(1, 0.1))
    with pytest.raises(EventError, match="fetch 1 has ended already"):
        harness.send(FetchEnded(1, 0.1))
    with pytest.raises(EventError, match="fetch 2 never began"):
        harness.send(FetchEnded(2, 0.1))


def test_a_snapshot_includes_the_prefetcher():
    harness = reading("ann", "bob", budget_mib=4)
    harness.send(SessionBegan("ann", "s"), SessionBegan("bob", "s"))
    harness.send(predicted(likely("x"), likely("y"), likely("z"), tenant="ann"), predicted(likely("x"), tenant="bob"))
    harness.send(FetchEnded(2, 0.1, "down"))
    body = snapshot.take(harness.scheduler, PolicySettings("fcfs"), now_ms=0)
    again = snapshot.restore(snapshot.read(body))
    events = [FetchEnded(1, 0.1), predicted(likely("y"), tenant="bob"), SessionEnded("ann", "s")]
    assert again.step(1, events) == harness.send(*events, at=1)
