"""Many clients at once, with cancels, time limits and killed sandboxes: every call ends once, and nothing is left over.

`make test` does it small; `make test-long` with 200 clients on 100 actions for a minute.
"""

import asyncio
import os
import re
from random import Random

import httpx
import psutil
import pytest
from load_clients import ERROR_SORTS, TRIGGER, Load, action_names, entity, sort_of

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer, open_files
from aliquot.testing.waiting import wait_until

SECONDS = float(os.environ.get("ALIQUOT_LOAD_S", "5"))
CLIENTS = int(os.environ.get("ALIQUOT_LOAD_CLIENTS", "20"))
ACTIONS = int(os.environ.get("ALIQUOT_LOAD_ACTIONS", "12"))
# Growth allowed since the first half of the load: a process keeps fragments of the memory that it has once used.
# It levels out after some thousand calls, so in a long run this is little more than 1 KiB a call: less than a record.
ALLOWED_BYTES = 32 * 2**20
ALLOWED_THREADS = (os.cpu_count() or 1) + 4  # the event loop's own, made when first needed


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("load") / "data"
    with LiveServer(data) as running:
        yield running
    assert running.process.returncode == 0
    assert replay_file(data).differences == []


def status(server):
    headers = {"authorization": f"Bearer {server.operator}"}
    return httpx.get(f"{server.url}/operator/v1/status", headers=headers, timeout=60).raise_for_status().json()


def deploy(client, names):
    components = [f"/_/{name}" for name in names if sort_of(name) == "echo"][:2]
    for name in sorted(names, key=lambda name: sort_of(name) == "sequence"):
        client.put(f"actions/{name}", json=entity(name, components)).raise_for_status()
    client.put(f"triggers/{TRIGGER}", json={}).raise_for_status()
    for number, name in enumerate(name for name in names if sort_of(name) in {"sleep", "sequence", "crash"}):
        rule = {"trigger": f"/_/{TRIGGER}", "action": f"/_/{name}"}
        client.put(f"rules/load-rule-{number % 3}", params={"overwrite": "true"}, json=rule).raise_for_status()


def remove(client, names):
    for name in names:
        client.delete(f"actions/{name}").raise_for_status()
    for rule in client.get("rules").json():
        client.delete(f"rules/{rule['name']}").raise_for_status()
    client.delete(f"triggers/{TRIGGER}").raise_for_status()


class Held:
    """The resources that an idle server holds."""

    def __init__(self, server):
        process = psutil.Process(server.process.pid)
        self.files = open_files(server.process.pid)
        self.processes = len(server.descendants())
        self.threads = process.num_threads()
        self.memory = process.memory_info().rss
        self.scratch = sum(1 for _ in (server.data / "scratch").iterdir())

    def __repr__(self):
        return str(vars(self))


def settle(server):
    until_no_calls(server)
    wait_until(lambda: trouble(server), lambda _: status(server)["sandboxes"] == [], what="all sandboxes to end")


def until_no_calls(server):
    wait_until(lambda: trouble(server), lambda found: found[0] == 0, what="all calls to end")


def trouble(server):
    """Return the server's state for an error message."""
    found = status(server)
    flows = [flow for flow in found["flows"] if flow["queued"] or flow["in_flight"]]
    return found["calls"], flows, found["sandboxes"], server.log.read_text()[-5000:]


def all_records(client):
    """Return all records by id, and check that each is listed once."""
    found = {}
    while page := client.get("activations", params={"limit": 200, "skip": len(found)}).raise_for_status().json():
        for item in page:
            assert item["activationId"] not in found, "one call, one record"
            found[item["activationId"]] = item
    return found


def ended_by_the_metrics(server):
    page = server.metrics()
    return sum(float(value) for value in re.findall(r"^aliquot_activations_total{[^}]*} (\S+)$", page, re.MULTILINE))


def test_every_call_ends_once_and_nothing_is_left_over(server):
    random = Random(11)
    names = action_names(ACTIONS)
    load = Load(server, names, random)
    with server.client() as client:
        # First a little, so that what is made once (zygotes, connections of the store, caches) is there already.
        deploy(client, names)
        asyncio.run(load.run(CLIENTS, SECONDS / 2))
        remove(client, names)
        settle(server)
        before = Held(server)
        deploy(client, names)
        asyncio.run(load.run(CLIENTS, SECONDS))
        until_no_calls(server)
        remove(client, names)
        settle(server)

        assert all(load.counts.values()), load.counts
        records = all_records(client)
        assert set(load.acknowledged) <= set(records)
        runs = [item for item in records.values() if item["name"] != TRIGGER]  # a trigger's record has no run
        assert ended_by_the_metrics(server) == len(runs)
        check_records(client, load, records)
    after = wait_until(
        lambda: Held(server),
        lambda now: now.files <= before.files and now.processes <= before.processes,
        what=f"the server to hold no more than {before}",
    )
    assert after.threads <= before.threads + ALLOWED_THREADS, (before, after)
    assert after.scratch <= before.scratch, (before, after)
    assert after.memory <= before.memory + ALLOWED_BYTES, (before, after)
    assert "Traceback" not in server.log.read_text(), server.log.read_text()


def check_records(client, load, records):
    for activation, (name, _) in load.acknowledged.items():
        item = records[activation]
        assert item["name"] == name
        assert name == TRIGGER or item["end"] >= item["start"]
    sample = load.random.sample(sorted(load.acknowledged), min(2000, len(load.acknowledged)))
    for activation in sample:
        name, n = load.acknowledged[activation]
        response = client.get(f"activations/{activation}").raise_for_status().json()["response"]
        if activation in load.answered:
            assert response == load.answered[activation]
        if response["success"] and name != TRIGGER:
            assert sort_of(name) not in ERROR_SORTS
            assert response["result"].get("n") == n, (name, n, response)
