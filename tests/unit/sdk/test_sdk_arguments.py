"""Arguments of the decorator, the search for a server, and the errors for wrong ones."""

import json
import pickle

import pytest

import aliquot
from aliquot.sdk.errors import NoServerError, UsageError
from aliquot.sdk.server import ServerAddress, find_server
from aliquot.sdk.units import read_mib, read_ms


def test_sizes_and_times_are_read():
    assert [read_mib(value, "m") for value in ("2GiB", "1.5 gib", "1GB", "1KiB", 300)] == [2048, 1536, 954, 1, 300]
    assert [read_ms(value, "t") for value in ("200ms", "1.5s", "5m", "5 min", "1h", 2, 0.5)] == [
        *(200, 1500, 300_000, 300_000, 3_600_000, 2000, 500)
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"memory": "2 GX"}, "memory: '2 GX' is not a size; it takes one such as '2GiB', or a whole number of MiB"),
        ({"memory": "2048"}, "memory: '2048' is not a size"),
        ({"memory": True}, "memory: True is not a size"),
        ({"memory": 0}, "memory: 0 is not a size"),
        ({"memory": 1.5}, "memory: 1.5 is not a size"),
        ({"timeout": "1 day"}, "timeout: '1 day' is not a time"),
        ({"timeout": float("nan")}, "timeout: nan is not a time"),
        ({"timeout": "60"}, "timeout: '60' is not a time; it takes one of a millisecond or more"),
        ({"latency_slo": "0ms"}, "latency_slo: '0ms' is not a time"),
        ({"latency_slo": -1}, "latency_slo: -1 is not a time"),
        ({"gpu": 0}, "gpu: 0 is not a share of a GPU; it takes a number above 0, at most 1"),
        (
            {"gpu": 1.5},
            "gpu: 1.5 is not a share of a GPU; it takes a number above 0, at most 1, or a whole number of GPUs",
        ),
        ({"gpu": float("inf")}, "gpu: inf is not a share"),
        ({"gpu_limit": 0.5}, "gpu_limit: 0.5 needs a GPU; say how much of one, such as gpu=0.25"),
        ({"gpu": 0.5, "gpu_limit": 0}, "gpu_limit: 0 is not a share"),
        ({"gpu_memory_limit": "1GiB"}, "gpu_memory_limit: '1GiB' needs a GPU; say how much of one, such as gpu=0.25"),
        ({"gpu": "0.5"}, "gpu: '0.5' is not a share"),
        ({"gpu_memory": "1GiB"}, "gpu_memory: '1GiB' needs a GPU; say how much of one, such as gpu=0.25"),
        ({"weight": 0}, "weight: 0 does not fit; it takes a number above 0"),
        ({"imports": "numpy"}, "imports: 'numpy' is not a list; it takes one such as ['numpy']"),
        ({"imports": ["numpy==2"]}, "imports: 'numpy==2' is not a module's name; versions belong into requirements"),
        ({"requirements": [""]}, "requirements: '' is not a name"),
        ({"datasets": "lab"}, "datasets: 'lab' is not a list; it takes one such as ['imagenet']"),
        ({"env": ["A=1"]}, "env: ['A=1'] is not a mapping; it takes one such as {'MODE': 'fast'}"),
        ({"env": {"A-B": "1"}}, "env: 'A-B' is not a variable's name"),
        ({"env": {"A": 1}}, "env: the value of A is 1; it takes text, such as '1'"),
        ({"secrets": "hf"}, "secrets: 'hf' is not a list; it takes one such as ['hf']"),
        ({"warm": 101}, "warm: 101 does not fit; it takes a whole number from 0 to 100"),
        ({"retries": 11}, "retries: 11 does not fit; it takes a whole number from 0 to 10"),
        ({"retries": 1, "rerun": True}, "retries: leave out rerun, which says the same"),
        ({"schedule": "often"}, "schedule: 'often' is not a schedule; it takes one such as '*/5 * * * *', in UTC"),
        ({"gpus": 1}, "gpus: there is no such argument; there are gpu, gpu_memory"),
        ({"rerun": 11}, "rerun: 11 does not fit; it takes True, False, or a number up to 10"),
        ({"rerun": "often"}, "rerun: 'often' does not fit; it takes True, False, or a number up to 10"),
    ],
)
def test_an_argument_that_does_not_parse_is_named_with_what_it_takes(arguments, complaint):
    with pytest.raises(UsageError) as caught:
        aliquot.App("x").function(**arguments)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "-a", "1a", "a" * 101, 5])
def test_an_app_needs_a_plain_name(name):
    with pytest.raises(UsageError, match="is not a name; it takes letters"):
        aliquot.App(name)


async def asynchronous():
    pass


def plain():
    pass


def test_what_cannot_run_there_is_refused_where_it_is_defined():
    app = aliquot.App("x")

    def inner():
        pass

    for raw, complaint in [
        (inner, "is inside another function or class; move it to the top"),
        (len, "is not a function; @app.function goes over a def"),
        (asynchronous, "asynchronous is async, which is not supported"),
    ]:
        with pytest.raises(UsageError, match=complaint):
            app.function(raw)
    app.function(plain)
    twin = type(plain)(plain.__code__.replace(co_firstlineno=1), globals(), "plain")
    with pytest.raises(UsageError, match="has a function 'plain' already"):
        app.function(twin)


def test_a_function_travels_by_name():
    function = aliquot.App("x").function(plain)
    globals()["plain"], kept = function, plain
    try:
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - its own
    finally:
        globals()["plain"] = kept


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY", "ALIQUOT_DATA", "ALIQUOT_OPERATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # no server of another test is found
    return tmp_path


def test_the_server_is_found_by_arguments_then_environment_then_files(nowhere, monkeypatch):
    with pytest.raises(NoServerError, match=r"there is no .*/\.aliquot/local\.json; start a platform .*: aliquot up;"):
        find_server()
    for folder in (".aliquot", "elsewhere"):
        (nowhere / folder).mkdir()
        found = {"url": f"http://{folder}:1/", "namespace": "n", "key": "u:s", "operator": "o", "pid": 1}
        (nowhere / folder / "local.json").write_text(json.dumps(found))
    assert find_server() == ServerAddress("http://.aliquot:1", "u:s", "o", str(nowhere / ".aliquot" / "local.json"))
    monkeypatch.setenv("ALIQUOT_DATA", str(nowhere / "elsewhere"))
    assert find_server().url == "http://elsewhere:1"
    monkeypatch.setenv("ALIQUOT_URL", "https://far")
    with pytest.raises(UsageError, match=r"a key \(ALIQUOT_KEY\) is missing"):
        find_server()
    monkeypatch.setenv("ALIQUOT_KEY", "a:b")
    assert find_server()[:2] == ("https://far", "a:b")
    assert find_server(url="http://near", key="c:d")[:2] == ("http://near", "c:d")
    assert find_server(url="http://near")[:2] == ("http://near", "a:b")
    assert "a:b" not in repr(find_server())


def test_a_damaged_file_is_named(nowhere):
    (nowhere / ".aliquot").mkdir()
    (nowhere / ".aliquot" / "local.json").write_text("{")
    with pytest.raises(NoServerError, match=r"local\.json is not what `aliquot up` writes"):
        find_server()
