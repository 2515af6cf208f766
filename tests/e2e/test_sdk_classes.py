"""Classes of an app on a real platform, and the tracebacks that callers see."""

import asyncio
import importlib
import re
import sys
import traceback

import pytest
from places import SUPPORT

from aliquot.sdk import errors


@pytest.fixture
def classes(shared_server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", shared_server.url)
    monkeypatch.setenv("ALIQUOT_KEY", shared_server.key)
    monkeypatch.syspath_prepend(str(SUPPORT))
    sys.modules.pop("sample_classes", None)
    yield importlib.import_module("sample_classes")
    sys.modules.pop("sample_classes", None)


def test_methods_share_the_object_that_was_set_up_once(classes):
    model = classes.Model()
    assert model.predict.remote(2) == 12
    assert model.predict.remote(2, scale=2) == 24
    assert model.size.remote() == 3
    assert list(model.predict.map([1, 2], concurrency=1)) == [6, 12]
    assert model.predict.spawn(3).get(timeout=30) == 18
    assert asyncio.run(classes.Model().predict.remote.aio(1)) == 6
    first = model.when.remote()
    assert model.when.remote() == first  # the same object in the same process
    with pytest.raises(ValueError, match="odd"):
        model.fail.remote("odd")
    assert model.when.remote() == first


def test_methods_are_steps_of_chains_and_workflows(classes):
    model = classes.Model()
    joined = model.predict | classes.double | classes.Model().predict
    assert (joined(1), joined.remote(1), joined.remote(x=1, scale=2)) == (72, 72, 144)
    assert (classes.double | model.predict).remote(2) == 24
    assert joined is model.predict | classes.double | model.predict
    assert classes.score(1) == classes.score.remote(1) == [36, [6, 216], 3]
    with pytest.raises(errors.UsageError, match=r"methods of @app.cls such as Model\(\).predict"):
        classes.double | classes.Model


def test_a_class_runs_in_this_process_too(classes):
    model = classes.Model()
    assert (model.predict(2), model.size()) == (12, 3)
    assert model.when() == classes.Model().when()


def test_the_set_up_counts_as_the_time_of_the_start(classes, shared_server):
    classes.app.deploy()
    with shared_server.client() as client:
        client.delete("actions/classes.Model").raise_for_status()
    assert classes.Model().predict.remote(1) == 6  # deployed again, so the start is cold
    with shared_server.client() as client:
        record = client.get("activations", params={"limit": 1, "docs": "true"}).json()[0]
    times = {pair["key"]: pair["value"] for pair in record["annotations"]}
    assert times["start"] == "cold"
    assert times["initTime"] >= 200  # as long as the set-up sleeps


def test_an_error_of_the_set_up_is_told_as_such(classes):
    with pytest.raises(errors.FunctionError, match="The set-up of Broken failed: RuntimeError: no weights here"):
        classes.Broken().predict.remote(1)


def test_methods_by_json_are_named_unless_there_is_one(classes, shared_server):
    classes.app.deploy()
    with shared_server.client() as client:
        assert client.result("classes.Model", {"method": "predict", "x": 2}) == {"value": 12}
        wrong = client.call("classes.Model", {"x": 2})
    assert "method: None does not fit; classes.Model has size, predict" in wrong["response"]["result"]["error"]


def test_what_cannot_be_called_is_refused(classes):
    with pytest.raises(AttributeError, match="has no method '_hidden' to call; it has size, predict, when, fail"):
        classes.Model()._hidden  # noqa: B018 - the access itself raises
    with pytest.raises(errors.UsageError, match="it takes no arguments"):
        classes.Model(1)
    app = classes.app
    with pytest.raises(errors.UsageError, match="class Empty has no method to call"):
        app.cls(type("Empty", (), {"__qualname__": "Empty"}))
    with pytest.raises(errors.UsageError, match="is not a class; @app"):
        app.cls(len)


@pytest.mark.parametrize("way", ["remote", "aio", "map", "spawn"])
def test_a_traceback_leads_from_the_callers_line_to_the_functions_own(classes, way):
    calls = {
        "remote": lambda: classes.fails.remote("x"),
        "aio": lambda: asyncio.run(classes.fails.remote.aio("x")),
        "map": lambda: list(classes.fails.map(["x"])),
        "spawn": lambda: classes.fails.spawn("x").get(timeout=30),
    }
    with pytest.raises(LookupError) as caught:
        calls[way]()
    shown = "".join(traceback.format_exception(caught.value))
    ours = [name for name in re.findall(r'File ".*?/aliquot/(.*?)"', shown) if not name.startswith("sdk/mapping")]
    assert ours == []
    assert f'File "{SUPPORT / "sample_classes.py"}", line ' in shown
    assert "raise LookupError(what)  # the innermost line" in shown
    assert shown.index("test_sdk_classes.py") < shown.index("sample_classes.py")


def test_the_log_names_the_file_of_the_app(classes, shared_server):
    with pytest.raises(LookupError):
        classes.fails.remote("logged")
    with shared_server.client() as client:
        record = client.get("activations", params={"limit": 1, "docs": "true"}).json()[0]
    assert 'File "sample_classes.py", line ' in "\n".join(record["logs"])


def test_our_own_errors_have_none_of_our_frames_either(classes):
    classes.app.functions["fails"].action = "classes.nothing"
    classes.app.autodeploy = False
    with pytest.raises(errors.NotFoundError) as caught:
        classes.fails.remote("x")
    assert "/aliquot/sdk/" not in "".join(traceback.format_tb(caught.value.__traceback__))
