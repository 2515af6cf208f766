"""Calls with one head, which is parsed once, and calls at once: each has its record and its steps in the journal."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

from aliquot.core.commands import Complete, Run, RunNext
from aliquot.core.events import InvocationArrived, RunFinished
from aliquot.live.invocations.journal.format import read_step
from aliquot.live.invocations.journal.snapshot import FORMAT
from aliquot.live.store.journal import read_journal
from aliquot.testing.waiting import wait_until

CALLS = 30
PATH = "/api/v1/namespaces/_/actions/repeated?blocking=true&result=true"


def journal_of(server, wanted):
    """Return how often each event and command of these invocations is in the journal."""
    counts = {}
    for entry in read_journal(server.data):
        if entry.number:  # the first entry of a segment is its snapshot
            step = read_step(entry.body, FORMAT)
            for one in (*step.events, *step.commands):
                if getattr(one, "invocation", None) in wanted:
                    counts[type(one)] = counts.get(type(one), 0) + 1
    return counts


def test_every_call_has_its_record_and_its_steps_in_the_journal(shared_server):
    server = shared_server
    server.deploy("repeated", "def main(args):\n    return args\n")
    address, ids = urlsplit(server.url), set()
    with server.client() as client, closing(HTTPConnection(address.hostname, address.port, timeout=30)) as connection:
        headers = {"Authorization": client.authorization, "Content-Type": "application/json"}
        for number in range(CALLS):
            # This client sends head and body at once, as most do.
            connection.request("POST", PATH, b'{"n":%d}' % (number % 10), headers)
            answer = connection.getresponse()
            assert json.loads(answer.read()) == {"n": number % 10}
            ids.add(answer.headers["x-openwhisk-activation-id"])
        assert len(ids) == CALLS
        records = [client.get(f"activations/{one}").json() for one in ids]
        assert {record["activationId"] for record in records} == ids
        assert all(record["response"]["success"] for record in records)
    expected = dict.fromkeys((InvocationArrived, RunFinished, Run, Complete), CALLS)
    wait_until(
        lambda: journal_of(server, ids),
        lambda counts: {kind: counts.get(kind, 0) for kind in expected} == expected,
        what="the journal to have every call",
    )


COUNTS_ITS_RUNS = """
import os
sandbox, runs = os.urandom(8).hex(), 0
def main(args):
    global runs
    runs += 1
    return {"sandbox": sandbox, "run": runs}
"""


def test_short_calls_at_once_run_once_each_and_have_their_records_and_steps(shared_server):
    """Most of them are handed to a sandbox that is busy."""
    server, callers = shared_server, 12
    server.deploy("at-once", COUNTS_ITS_RUNS)

    def calls(_):
        answers = []
        with server.client() as client:
            for _ in range(CALLS):
                record = client.call("at-once", {})
                answers.append((record["activationId"], record["response"]["result"]))
        return answers

    with ThreadPoolExecutor(callers) as threads:
        answers = [answer for some in threads.map(calls, range(callers)) for answer in some]
    ids = {activation for activation, _ in answers}
    assert len(ids) == callers * CALLS
    runs = {(result["sandbox"], result["run"]) for _, result in answers}
    last = {sandbox: max(run for of, run in runs if of == sandbox) for sandbox, _ in runs}
    assert sum(last.values()) == len(runs) == len(ids), "a call ran twice, or two have the result of one run"
    with server.client() as client:
        assert all(client.get(f"activations/{one}").json()["activationId"] == one for one in ids)
    expected = dict.fromkeys((InvocationArrived, RunFinished, Complete), len(ids))
    counts = wait_until(
        lambda: journal_of(server, ids),
        lambda counts: {kind: counts.get(kind, 0) for kind in expected} == expected,
        what="the journal to have every call",
    )
    assert counts.get(Run, 0) + counts.get(RunNext, 0) >= len(ids)
