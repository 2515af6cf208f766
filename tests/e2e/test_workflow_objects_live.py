"""Objects that JSON cannot hold pass between tasks of a workflow, in and out of it, on a real server."""

import sys
from contextlib import contextmanager

import pytest
from live_workflows import chain, deploy, task
from places import SUPPORT

from aliquot.sdk import errors
from aliquot.testing.client import to_pairs
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until


@contextmanager
def app_on(server):
    """Import the app of these tests, which calls a server."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("ALIQUOT_URL", server.url)
        monkeypatch.setenv("ALIQUOT_KEY", server.key)
        monkeypatch.syspath_prepend(str(SUPPORT))
        sys.modules.pop("gallery", None)
        import gallery

        yield gallery
        sys.modules.pop("gallery", None)


@pytest.fixture
def gallery(shared_server):
    with app_on(shared_server) as gallery:
        yield gallery


def test_an_object_passes_between_tasks_and_what_json_holds_can_be_looked_into(gallery):
    assert gallery.show.remote("sun") == gallery.show("sun") == {"bytes": 30, "passed": ["load", "change"]}
    assert gallery.show.remote("moon") == gallery.show("moon") == {"bytes": 40, "passed": ["load", "long"]}
    size = gallery.LARGE_BYTES
    assert gallery.show.remote("s", size) == {"bytes": size, "passed": ["load", "change"]}


@pytest.mark.parametrize("size", [100, 100_000, 3_000_000])
def test_large_bytes_pass_in_shared_memory_and_from_the_disk(gallery, size):
    whole = b"l" * size + b"r" * size + b"s"
    for workflow in (gallery.joined_quickly, gallery.joined):
        assert workflow.remote(size) == [whole, whole + b"ss", size]


def test_objects_are_in_inputs_and_outputs(gallery):
    assert gallery.keep.remote("sun") == gallery.keep("sun")
    assert gallery.keep.start("sun").result(timeout=60) == gallery.keep("sun")
    picture = gallery.Picture(b"x" * gallery.LARGE_BYTES)
    assert gallery.alone.remote(picture) == gallery.alone(picture)
    assert gallery.alone.start(picture).result(timeout=60) == gallery.alone(picture)


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_an_express_execution_hands_objects_on_as_well(gallery, size):
    picture = gallery.Picture(b"x" * size)
    assert gallery.quickly.remote(picture, size) == gallery.quickly(picture, size)
    assert gallery.quickly.start(picture, size).result(timeout=60) == gallery.quickly(picture, size)


def test_a_map_takes_a_list_of_objects(gallery):
    assert gallery.each.remote(20) == gallery.each(20)


def test_an_object_is_still_there_when_an_error_is_caught(gallery):
    assert gallery.caught.remote("sun") == gallery.caught("sun")


def test_large_json_passes_by_reference_as_well(gallery):
    texts = ["x" * 1000] * 2000
    assert gallery.counted.remote(texts) == gallery.counted(texts) == 2_000_000
    assert gallery.large.remote(1500) == gallery.large(1500) == [1500, 1_500_000]


def test_a_workflow_in_a_workflow_takes_and_returns_objects(gallery):
    assert gallery.nested.remote("sun") == gallery.nested("sun")


def test_a_chain_of_a_group_takes_objects_in_each_step(gallery):
    first, second = gallery.Picture(b"a" * 200_000), gallery.Picture(b"b")
    assert gallery.in_group.remote(first, second) == gallery.in_group(first, second)


def test_a_workflow_cannot_look_into_an_object(gallery):
    for workflow in (gallery.looked_into, gallery.compared):
        with pytest.raises(TypeError, match="Picture"):
            workflow.remote("sun")


@pytest.mark.parametrize("durable", [True, False])
def test_jsonata_hands_objects_on_in_the_server_and_in_its_workers(gallery, shared_server, durable):
    gallery.show.remote("sun")  # deploys the functions
    load = task("gallery.load", Arguments={"name": "moon"}, Output="{% $states.result %}")
    pick = {"Type": "Pass", "Output": "{% $map([$states.input.picture], function($p){ {'picture': $p} })[0] %}"}
    change = task("gallery.change", Arguments={"picture": "{% $states.input.picture %}", "by": "jsonata"})
    describe = task("gallery.describe", Arguments={"picture": "{% $states.input %}"})
    with shared_server.client() as client:
        deploy(client, "picked", chain(load, pick, change, describe, QueryLanguage="JSONata"), durable=durable)
        assert client.result("picked", {}) == {"bytes": 40, "passed": ["load", "jsonata"]}
        wrong = {"Type": "Pass", "Output": "{% $string($states.input) %}"}
        deploy(client, "opened", chain(load, wrong, QueryLanguage="JSONata"), durable=durable)
        assert client.call("opened", {})["response"]["result"]["error"]["name"] == "States.QueryEvaluationError"


def test_what_cannot_be_pickled_is_refused(gallery):
    with pytest.raises(errors.UsageError, match="cannot be sent"):
        gallery.alone.remote(lambda: 1)
    with pytest.raises(errors.UsageError, match="with a name takes JSON"):
        gallery.alone.start_as("once", gallery.Picture(b""))


def test_histories_and_descriptions_describe_objects(gallery):
    execution = gallery.keep.start("sun")
    execution.result(timeout=60)
    described = execution.describe()
    assert described["output"]["of"] == "sun"
    assert described["output"]["picture"].keys() == {"type", "bytes"}
    assert described["output"]["picture"]["type"].endswith("Picture")
    events = execution.history()
    ended = next(event for event in events if event["type"] == "TaskSucceeded")["taskSucceededEventDetails"]
    assert '"score":3' in ended["output"]
    assert "Picture" in ended["output"]


def test_a_plain_action_takes_no_object(gallery, shared_server):
    with shared_server.client() as client:
        client.deploy("plain", "def main(args): return args", annotations=to_pairs({}))
        gallery.load.deploy()
        definition = (
            '{"StartAt":"A","States":{"A":{"Type":"Task","Resource":"gallery.load","Next":"B"},'
            '"B":{"Type":"Task","Resource":"plain","End":true}}}'
        )
        client.deploy("mixed", definition, kind="workflow")
        answer = client.post("actions/mixed?blocking=true&result=true", json={"name": "sun"})
        assert answer.status_code == 502
        assert "only functions of the SDK and workflows take" in answer.text


def test_a_malformed_container_is_refused(gallery, shared_server):
    gallery.alone.deploy()
    with shared_server.client() as client:
        answer = client.post(
            "actions/gallery.alone?blocking=true",
            content=b"\x00ALO" + b"\xff" * 8,
            headers={"Content-Type": "application/x-aliquot-pickle"},
        )
        assert answer.status_code == 400, answer.text
        assert "cut off" in answer.text


def test_objects_survive_a_kill_and_a_redrive_takes_them_from_the_disk(tmp_path):
    with LiveServer(tmp_path / "data") as server:
        with app_on(server) as gallery:
            waiting, stopped = gallery.joined.start(gallery.LARGE_BYTES), gallery.keep.start("sun")
            for execution in (waiting, stopped):
                wait_until(execution.describe, lambda found: "sleep" in str(found["states"]), what="the wait")
            stopped.stop()
        server.kill()
        server.start()
        with app_on(server) as gallery:
            stopped = gallery.keep.execution(stopped.id)
            stopped.redrive()
            whole = b"l" * gallery.LARGE_BYTES + b"r" * gallery.LARGE_BYTES + b"s"
            found = gallery.joined.execution(waiting.id).result(timeout=60)
            assert found == [whole, whole + b"ss", gallery.LARGE_BYTES]
            assert stopped.result(timeout=60) == gallery.keep("sun")
