"""Two tenants on one real server: an attacker, and a neighbour who must not notice."""

from typing import NamedTuple

import pytest

from aliquot.testing.client import NamespaceClient
from aliquot.testing.server import LiveServer

NEIGHBOUR_CODE = "def main(args):\n    return {'answer': 42}\n"


class Tenants(NamedTuple):
    server: LiveServer
    attacker: NamespaceClient
    neighbour: NamespaceClient

    def check_neighbour(self):
        """Deploy a function of the neighbour's and call it: it must be served whatever the attacker does."""
        self.neighbour.deploy("answer", NEIGHBOUR_CODE)
        assert self.neighbour.result("answer", {}) == {"answer": 42}


@pytest.fixture(scope="module")
def server_options():
    """Options of `aliquot up`. A module overrides this fixture to set its own."""
    return ("--devices", "host:1")


@pytest.fixture(scope="module")
def server_environment():
    """Environment variables of the server, by default those of the tests. A module overrides it to set its own."""


@pytest.fixture(scope="module")
def tenants(tmp_path_factory, server_options, server_environment):
    """A server of this module, with the namespaces `attacker` and `neighbour`."""
    data = tmp_path_factory.mktemp("hostile") / "data"
    with (
        LiveServer(data, *server_options, env=server_environment) as server,
        server.client(server.create_namespace("attacker")) as attacker,
        server.client(server.create_namespace("neighbour")) as neighbour,
    ):
        yield Tenants(server, attacker, neighbour)
