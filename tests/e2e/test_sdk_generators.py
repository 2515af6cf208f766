"""Functions that yield, on a real platform: results come one by one, and a caller that goes away ends them."""

import asyncio
import importlib
import json
import sys
import time

import pytest
from places import SUPPORT

from aliquot.sdk import errors
from aliquot.testing.waiting import wait_until


@pytest.fixture
def parts(shared_server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", shared_server.url)
    monkeypatch.setenv("ALIQUOT_KEY", shared_server.key)
    monkeypatch.syspath_prepend(str(SUPPORT))
    sys.modules.pop("sample_generators", None)
    yield importlib.import_module("sample_generators")
    sys.modules.pop("sample_generators", None)


def records(server, name):
    """Return the records of a function's calls, the latest first."""
    with server.client() as client:
        return client.get("activations", params={"docs": "true", "name": name}).json()


def next_record(server, name, before):
    """Wait for a record that was not there before, and return it."""
    found = wait_until(
        lambda: records(server, name), lambda now: len(now) > len(before), what=f"the record of a call of {name}"
    )
    return found[0]


def test_parts_come_before_the_function_has_ended(parts, shared_server):
    before = records(shared_server, "parts.count")
    stream = parts.count.remote_gen(3, pause=1.0)
    begun = time.monotonic()
    assert next(stream) == {"number": 0}
    first = time.monotonic() - begun
    assert list(stream) == [{"number": 1}, {"number": 2}]
    assert time.monotonic() - begun > first + 1.5  # two pauses lie between the first part and the end
    record = next_record(shared_server, "parts.count", before)
    assert record["response"]["success"]
    assert [line.rpartition(" ")[2] for line in record["logs"]] == ["0", "1", "2"]


def test_parts_come_on_an_event_loop_and_from_classes(parts):
    async def collect():
        return [part async for part in parts.count.remote_gen.aio(3)]

    assert asyncio.run(collect()) == [{"number": number} for number in range(3)]
    assert list(parts.Speaker().say.remote_gen(2)) == ["so", "it", "goes"] * 2
    assert list(parts.Speaker().say(1)) == ["so", "it", "goes"]  # here


def test_a_caller_that_waits_for_all_gets_a_list(parts):
    assert parts.count.remote(2) == [{"number": 0}, {"number": 1}]
    assert parts.count.spawn(1).get(timeout=30) == [{"number": 0}]


def test_an_error_comes_where_the_function_raised_it(parts):
    seen = []
    with pytest.raises(ValueError, match="no 2") as caught:
        seen.extend(parts.count.remote_gen(5, fail_at=2))
    assert seen == [{"number": 0}, {"number": 1}]
    assert "sample_generators.py" in "".join(caught.value.__notes__)


def test_a_caller_that_goes_away_ends_the_function(parts, shared_server):
    before = records(shared_server, "parts.endless")
    stream = parts.endless.remote_gen()
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    stream.close()
    record = next_record(shared_server, "parts.endless", before)
    assert record["response"]["success"]
    assert "closed after" in record["logs"][-1]  # its own clean-up ran

    async def leave():
        async for number, _ in parts.endless.remote_gen.aio():
            if number == 2:
                break

    before = records(shared_server, "parts.endless")
    asyncio.run(leave())
    assert next_record(shared_server, "parts.endless", before)["response"]["success"]


def test_a_slow_reader_keeps_the_function_waiting(parts, shared_server):
    before = records(shared_server, "parts.endless")
    stream = parts.endless.remote_gen(size=1 << 20)
    next(stream)
    time.sleep(1.0)  # it could have yielded hundreds meanwhile
    stream.close()
    record = next_record(shared_server, "parts.endless", before)
    assert int(record["logs"][-1].rpartition(" ")[2]) < 60  # 16 that are queued, and what the sockets hold


def test_values_that_cannot_be_sent_fail_and_functions_that_do_not_yield_are_refused(parts):
    with pytest.raises(ValueError, match="takes at most 4194304 bytes"):
        list(parts.strange.remote_gen("large"))
    assert list(parts.strange.remote_gen("set")) == [1, {1, 2}]
    plain = parts.app.function(importlib.import_module("sample_classes").helper)
    with pytest.raises(errors.UsageError, match=r"parts\.helper does not yield; call it with remote"):
        plain.remote_gen("x")


def test_server_sent_events_have_each_part_as_json(parts, shared_server):
    parts.app.deploy()
    with shared_server.client() as client:
        path, headers = "actions/parts.count", {"accept": "text/event-stream"}
        with client.stream("POST", path, params={"blocking": "true"}, headers=headers, json={"to": 2}) as answer:
            text = answer.read().decode()
        failed = client.post(
            "actions/parts.strange", params={"blocking": "true"}, headers=headers, json={"what": "set"}
        )
    events = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
    assert [json.loads(one["data"]) for one in events if one["event"] == "part"] == [{"number": 0}, {"number": 1}]
    assert events[-1]["event"] == "result"
    assert json.loads(events[-1]["data"])["response"]["result"] == {"parts": 2}
    assert "not JSON serializable" in failed.text
