"""For as long as a module's tests run: a platform, and the npm client that has its key."""

import pytest
from npm_client import NpmClient

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("platform") / "data") as server:
        yield server
    replayed = replay_file(server.data)
    assert replayed.steps
    assert not replayed.differences


@pytest.fixture(scope="module")
def client(server):
    with NpmClient(apihost=server.url, api_key=server.key) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(server):
    """Another namespace's."""
    with NpmClient(apihost=server.url, api_key=server.create_namespace("stranger")) as client:
        yield client
