"""Users of one namespace on a real server: each one's files are there before that one's function asks."""

import pytest
from fabric_server import FabricServer, digest

from aliquot.storage.log.access_log import read_sessions
from aliquot.testing.waiting import wait_until
from aliquot_bench.origin.link import LinkShape, serve_origin

MB = 1_000_000
USERS = ("ann", "bob")
OWN = {user: {f"{user}/train.bin": MB, f"{user}/weights.bin": MB // 2} for user in USERS}
SESSIONS = 8  # of each


@pytest.fixture(scope="module")
def link():
    with serve_origin(OWN["ann"] | OWN["bob"], LinkShape(100 * MB, 0.001), force="paced") as link:
        yield link


@pytest.fixture(scope="module")
def server(tmp_path_factory, link):
    with FabricServer(tmp_path_factory.mktemp("users") / "data", "--cache-size", "100MB") as server:
        server.add("nas", link.url)
        server.deploy_reader("nas")
        yield server


def read_own(server, session, user):
    record = server.read(*(f"nas/{path}" for path in OWN[user]), session=session)
    assert record["response"]["result"]["read"] == {
        f"nas/{path}": digest(path, size) for path, size in OWN[user].items()
    }
    return record["annotations"]


def evict(server):
    """Empty the cache. A file that a sandbox has just closed may stay a moment longer."""

    def emptied():
        server.as_operator("POST", "/nas/evict").raise_for_status()
        return server.show("nas")["cached_bytes"] == 0

    wait_until(emptied, what="an empty cache")


def test_a_session_that_begins_has_its_own_users_files_brought(server):
    for number in range(len(USERS) * SESSIONS):
        user = USERS[number % len(USERS)]
        session = server.begin_session(user)
        read_own(server, session, user)
        server.end_session(session)
    assert server.learn()["versions"]
    logged = list(read_sessions(server.data / "fabric" / "accesses.db"))
    assert [session.user for session in logged] == [*USERS] * SESSIONS
    for user in USERS:
        evict(server)
        session = server.begin_session(user)
        size = sum(OWN[user].values())
        wait_until(
            lambda: server.show("nas")["cached_bytes"], lambda cached, size=size: cached >= size, what=f"{user}'s files"
        )
        assert server.show("nas")["cached_bytes"] == sum(OWN[user].values())
        notes = read_own(server, session, user)
        assert notes["opened"] == {"prefetched": len(OWN[user])}
        assert notes["wasted"] == 0
        server.end_session(session)
