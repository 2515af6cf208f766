"""No short way of a warm call skips a key, a limit, a record or the journal.

The short ways are heads that are remembered, calls that are dispatched without a queue, and calls that are handed to a
busy sandbox. Callers on kept connections use all of them at once, on a real server, which reads HTTP itself or has
gateway processes for it.
"""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from load_clients import API, ID, connection_to

from aliquot.core.commands import Dispatch, Run, RunNext
from aliquot.live.invocations.journal.format import read_step
from aliquot.live.invocations.journal.replay import replay_file
from aliquot.live.invocations.journal.snapshot import FORMAT
from aliquot.live.store import read_journal
from aliquot.testing.server import LiveServer

PATH = f"{API}/actions/short?blocking=true&result=true"
CALLERS, CALLS, MAX_ROUNDS = 16, 40, 20


class Callers:
    """Callers that send the same head again and again, each on a connection of its own."""

    def __init__(self, server):
        self.connections = [connection_to(server, kept=True) for _ in range(CALLERS)]
        self.ids = []  # of the calls that were made

    async def call(self, calls=CALLS):
        """Return how many answers had each status."""
        found = await asyncio.gather(*(self.call_from(connection, calls) for connection in self.connections))
        return sum(found, Counter())

    async def call_from(self, connection, calls):
        statuses = Counter()
        for _ in range(calls):
            answer = await connection.ask("POST", PATH, {"n": 1})
            statuses[answer.status] += 1
            if ID in answer.headers:
                self.ids.append(answer.headers[ID])
        return statuses

    def close(self):
        for connection in self.connections:
            connection.close()


def journalled(data):
    """Return all commands in the journal."""
    steps = (read_step(entry.body, FORMAT) for entry in read_journal(data) if entry.number)
    return [command for step in steps for command in step.commands]


def invocations(commands, *kinds):
    return [command.invocation for command in commands if isinstance(command, kinds)]


async def call_until_some_are_handed_ahead(callers, data):
    """Call in rounds, because on a busy machine a run may look long at first."""
    rounds = 0
    while not any(isinstance(command, RunNext) for command in journalled(data)):
        assert rounds < MAX_ROUNDS, "no call was handed ahead"
        assert await callers.call() == {200: CALLERS * CALLS}
        rounds += 1
        await asyncio.sleep(0.1)  # until the journal is on disk


async def change_limits_and_keys(server, callers):
    name = f"namespaces/{server.namespace}"
    await asyncio.to_thread(server.operate, "PATCH", name, json={"invocationsPerMinute": 1})
    limited = await callers.call(5)
    assert limited[429] >= 5 * CALLERS - 2, limited  # one call in each minute
    assert limited[200] + limited[429] == 5 * CALLERS
    await asyncio.to_thread(server.operate, "PATCH", name, json={"invocationsPerMinute": None})
    assert await callers.call(5) == {200: 5 * CALLERS}
    loading = asyncio.create_task(callers.call(200))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(server.operate, "POST", f"{name}/keys", json={})
    under_way = await loading
    assert under_way[401] > 0
    assert under_way[200] + under_way[401] == 200 * CALLERS
    assert await callers.call(2) == {401: 2 * CALLERS}


@pytest.fixture(scope="module", params=[("1", None), ("2", 0.25)], ids=["one gateway", "two gateways, a share"])
def played(request, tmp_path_factory):
    """Return the data of a server whose callers have used all short ways, and the ids of the calls that were made."""
    data, (gateways, share) = tmp_path_factory.mktemp("short") / "data", request.param
    with LiveServer(data, "--gateways", gateways, "--devices", "host:1") as server:
        notes = [{"key": "gpu-share", "value": share}] if share else []
        server.deploy("short", "def main(args): return args", annotations=notes)
        callers = Callers(server)

        async def play():
            assert await callers.call(1) == {200: CALLERS}
            alone = await callers.call_from(callers.connections[0], 20)  # nothing else waits
            assert alone == {200: 20}
            await call_until_some_are_handed_ahead(callers, data)
            await change_limits_and_keys(server, callers)
            callers.close()

        asyncio.run(play())
    return data, callers.ids


def test_keys_and_limits_hold_and_every_call_has_one_record(played):
    data, ids = played
    with closing(sqlite3.connect(data / "aliquot.db")) as store:
        recorded = [row[0] for row in store.execute("SELECT id FROM activation")]
    assert len(ids) == len(set(ids))
    assert sorted(recorded) == sorted(ids)


def test_every_call_is_dispatched_and_run_once_in_the_journal_which_replays(played):
    data, ids = played
    commands = journalled(data)
    taken_back = len(invocations(commands, Dispatch)) - len(ids)
    assert set(invocations(commands, Dispatch)) == set(ids) == set(invocations(commands, Run, RunNext))
    assert len(invocations(commands, Run, RunNext)) == len(ids) + taken_back
    assert replay_file(data).differences == []
