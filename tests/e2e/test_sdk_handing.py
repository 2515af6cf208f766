"""Values from function to function: the very objects within a group, shared memory between sandboxes."""

import importlib
import os
import signal
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from places import SUPPORT

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

MOST_KEPT = 16 * 2**20
NUMPY = ("--python", sys.executable)  # which has it


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(
        tmp_path_factory.mktemp("live") / "data", *NUMPY, "--limit", f"payload_bytes={MOST_KEPT}"
    ) as server:
        yield server
    assert not replay_file(server.data).differences


@pytest.fixture
def handing(server, monkeypatch):
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("ALIQUOT_DATA", str(server.data))
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    sys.modules.pop("handing", None)
    handing = importlib.import_module("handing")
    handing.app.deploy()
    yield handing
    sys.modules.pop("handing", None)


def records(server, name):
    with server.client() as client:
        found = client.get("activations", params={"name": name, "docs": "true"}).json()
    return sorted(found, key=lambda record: record["start"])


@pytest.mark.parametrize("kind", ["array", "bytes"])
def test_a_function_of_the_group_gets_and_gives_the_very_object(handing, server, kind):
    before = len(records(server, "handing.inner"))
    same, seen, _ = handing.outer.remote(kind, 100_000)
    assert (same, seen) == (True, True)
    inner, outer = records(server, "handing.inner"), records(server, "handing.outer")[-1]
    assert len(inner) == before + 1
    assert inner[-1]["cause"] == outer["activationId"]
    assert [line.rpartition(": ")[2] for line in inner[-1]["logs"]] == ["inner"]
    assert [line.rpartition(": ")[2] for line in outer["logs"]] == ["outer before", "outer after"]
    told = inner[-1]["response"]["result"]
    assert (
        told == {"type": "numpy.ndarray", "bytes": 800_000} if kind == "array" else {"type": "bytes", "bytes": 100_000}
    )


def test_what_the_apps_own_module_defines_is_made_anew_where_it_goes(handing):
    assert handing.outer.remote("own") == 6
    text, note = handing.outer.remote("raise")
    assert text == "of inner"
    assert note.startswith("raised by handing.inner in its group, activation ")


def test_a_result_that_does_not_travel_is_its_functions_error_and_the_sandbox_goes_on(handing, server):
    text, count = handing.bold.remote("lock")
    why = "handing.inner: its result cannot be handed over: cannot pickle '_thread.lock' object; it takes what"
    assert text.startswith(why)
    inner = records(server, "handing.inner")[-1]["response"]
    assert inner["status"] == "application error"
    assert inner["result"]["error"].startswith(f"UsageError: {why}")
    assert handing.bold.remote("") == count + 1


def test_who_catches_that_the_other_leaves_goes_on(handing, server):
    code, count = handing.bold.remote("leave")
    assert code == "3"
    inner = records(server, "handing.inner")[-1]["response"]
    assert (inner["status"], inner["result"]) == ("action developer error", {"error": "SystemExit: 3"})
    assert handing.bold.remote("") == count + 1


def test_one_run_calls_others_of_its_group_so_many_times(handing, server):
    before = len(records(server, "handing.inner"))
    with pytest.raises(Exception, match="one run may call functions of its group 1000 times at most"):
        handing.bold.remote("many", 1001)
    assert before < len(records(server, "handing.inner"))


def test_what_is_of_no_group_calls_nothing_inside_its_run(handing):
    with pytest.raises(Exception, match=r"there is no function 'handing\.alone'"):
        handing.alone.remote()


def test_a_function_cannot_blame_the_platform(handing, server):
    handing.bold.remote("tell")
    inner = records(server, "handing.inner")[-1]["response"]
    assert (inner["status"], inner["result"]) == ("action developer error", {"error": "whose fault?"})


def test_who_waits_for_another_in_its_sandbox_keeps_its_own_lines(handing, server):
    handle = handing.outer.spawn("slow")
    with server.client() as client:
        path = f"activations/{handle.id}"

        def first_line():
            with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
                return next(line for line in response.iter_lines() if line.startswith("data: "))

        assert "outer before" in first_line()  # said as the other began
        assert "outer before" in first_line()  # and heard by who comes later
        client.delete(path).raise_for_status()
        outer = wait_until(lambda: client.get(path), lambda answer: answer.is_success, what="the record").json()
    slow = records(server, "handing.slow")[-1]
    assert [line.rpartition(": ")[2] for line in outer["logs"]] == ["outer before"]
    assert not any("outer" in line for line in slow["logs"])


def test_what_ends_the_process_ends_all_that_run_in_it(handing, server):
    with pytest.raises(Exception, match=r"while the action waited for handing\.inner"):
        handing.outer.remote("end")
    inner, outer = records(server, "handing.inner")[-1], records(server, "handing.outer")[-1]
    assert inner["response"]["result"]["error"].endswith("exited unexpectedly.")
    assert inner["response"]["status"] == outer["response"]["status"] == "action developer error"
    assert any("outer before" in line for line in outer["logs"])
    assert handing.outer.remote("bytes")[0] is True


def test_a_large_array_goes_from_sandbox_to_sandbox_by_shared_memory_and_is_its_receivers_own(handing):
    size = 8_000_000
    told = handing.sender.remote(size)
    expected = float(np.arange(size // 8).sum())
    assert told == {"total": (expected, True), "same": True, "first": -1.0, "mine": 0.0, "writable": True}


def test_large_bytes_go_by_shared_memory_and_small_ones_in_the_body(handing):
    assert handing.sender.remote(65_536, "bytes") == ("bytes", 65_536, 1)
    assert handing.sender.remote(65_535, "bytes") == ("bytes", 65_535, 0)


def test_a_value_that_must_be_on_disk_is_kept_whole(handing):
    assert handing.spawner.remote(300_000) == (300_000, b"\0")
    assert handing.asker.remote(300_000) == 300_000


def test_what_must_be_on_disk_is_bounded_as_plain_bodies_are(handing):
    with pytest.raises(Exception, match=rf"larger than allowed: 16777280 > {MOST_KEPT} bytes"):
        handing.spawner.remote(MOST_KEPT + 64)
    with pytest.raises(Exception, match=rf"exceeded the allowed length: \d+ > {MOST_KEPT} bytes"):
        handing.asker.remote(MOST_KEPT + 64)


def test_from_outside_values_are_plain_bodies(handing):
    value = np.arange(20_000, dtype=np.float64)
    (total, shared), back = handing.receiver.remote(value)
    assert (total, shared) == (float(value.sum()), False)
    assert back.flags.writeable


def sequence(server, name, *components):
    with server.client() as client:
        body = {"exec": {"kind": "sequence", "components": [f"/_/{one}" for one in components]}}
        client.put(f"actions/{name}", params={"overwrite": "true"}, json=body).raise_for_status()


def test_a_sequence_of_functions_hands_on_what_json_cannot_hold(handing, server):
    assert handing.app.name == "handing"
    sequence(server, "sums", "handing.make", "handing.double", "handing.total")
    with server.client() as client:
        query = {"blocking": "true"}
        whole = client.post("actions/sums", params=query, json={"size": 800_000}).json()
        assert whole["response"]["result"] == {"total": 2 * sum(range(100_000)), "shared": True}
        steps = [client.get(f"activations/{each}").json() for each in whole["logs"]]
    assert [step["name"] for step in steps] == ["handing.make", "handing.double", "handing.total"]
    assert steps[0]["response"]["result"] == {"value": {"type": "numpy.ndarray", "bytes": 800_000}}
    sequence(server, "ends", "handing.make")
    with server.client() as client:
        ended = client.post("actions/ends", params={"blocking": "true", "result": "true"}, json={"size": 800})
    assert "The action's result is not valid JSON" in ended.json()["error"]


def buffers_in_use(server):
    """Descriptors and mappings of this server's buffers_in_use, of all processes that there are."""
    name, found = f"aliquot-buffer-{server.process.pid}", 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += sum(name in str(fd.readlink()) for fd in (process / "fd").iterdir())
            found += (process / "maps").read_text().count(name)
        except OSError:
            continue
    return found


def until_none_is_left(server):
    wait_until(lambda: buffers_in_use(server), lambda count: count == 0, what="the shared memory of values to be freed")


def sandboxes_of(server, function):
    headers = {"authorization": f"Bearer {server.operator}"}
    status = httpx.get(f"{server.url}/operator/v1/status", headers=headers).json()
    return [one["pid"] for one in status["sandboxes"] if one["function"] == function and one["pid"]]


def hold(handing, server):
    """A call that waits, with a large value of its in the hands of another sandbox."""
    until_none_is_left(server)
    handle = handing.holder.spawn(40_000_000)
    wait_until(
        lambda: (buffers_in_use(server), sandboxes_of(server, "handing.sleeper")),
        lambda found: found[0] >= 2 and found[1],
        what="a value in the hands of another sandbox",
    )
    return handle


@pytest.mark.parametrize("killed", ["handing.sleeper", "handing.holder"])
def test_nothing_is_left_of_a_value_when_the_one_that_has_it_or_gave_it_is_killed(handing, server, killed):
    handle = hold(handing, server)
    for pid in sandboxes_of(server, killed):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match=r"killed by signal 9 .SIGKILL.|exited unexpectedly"):
        handle.get(timeout=30)
    if killed == "handing.holder":  # what it called goes on by itself
        for pid in sandboxes_of(server, "handing.sleeper"):
            os.kill(pid, signal.SIGKILL)
    until_none_is_left(server)


def test_nothing_is_left_of_a_value_when_the_server_is_killed(handing, tmp_path, monkeypatch):
    with LiveServer(tmp_path / "data", *NUMPY) as server:
        monkeypatch.setenv("ALIQUOT_DATA", str(server.data))
        sys.modules.pop("handing", None)
        handing = importlib.import_module("handing")
        handing.app.deploy()
        hold(handing, server)
        handing.app.client().close()
        server.kill()
        until_none_is_left(server)
