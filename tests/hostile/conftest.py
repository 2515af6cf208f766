"""A server with two tenants for each module of hostile tests."""

import pytest
from network_peers import echo_server
from tenants import Tenants, served

from aliquot.testing.server import LiveServer


@pytest.fixture(scope="module")
def server_options():
    """Options of `aliquot up`. A module overrides this fixture to set its own."""
    return ("--devices", "host:1")


@pytest.fixture(autouse=True)
def first_call_is_served(request):
    """Check that the test of a budget's row has called a function of the neighbour's, and that it was served."""
    before = len(served)
    yield
    if request.node.get_closest_marker("budget"):
        assert len(served) > before, "a test of a budget must call `check_neighbour` while the attacker holds its part"


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


@pytest.fixture(scope="module")
def echo():
    """Return the address of a server on this machine."""
    with echo_server("127.0.0.77") as address:
        yield address
