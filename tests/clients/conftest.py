"""The server, and npm clients with the keys of two of its namespaces."""

import pytest
from npm_client import NpmClient


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture(scope="module")
def client(server):
    with NpmClient(apihost=server.url, api_key=server.key) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(server):
    """A client with the key of another namespace."""
    with NpmClient(apihost=server.url, api_key=server.create_namespace("stranger")) as client:
        yield client
