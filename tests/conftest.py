"""Set-up for all tests: profiles of the property tests, signals, the order of tests, and a server to share."""

import functools
import gc
import os
import signal
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings
from shared_server import SharedServer

from aliquot.live.invocations.journal.replay import replay_file

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=slow, derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=slow)
settings.load_profile("default")

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Each client of httpx reads all trusted certificates, which takes 25 ms. Tests make thousands of clients.
httpx._transports.default.create_ssl_context = functools.cache(httpx.create_ssl_context)

CHEAP_LAST = ("storage", "sim", "property", "unit")  # folders; the others come first


def pytest_collection_modifyitems(items):
    """Put the costly tests first, so that short ones are left for the end and the processes finish together."""

    def rank(item):
        folders = item.path.relative_to(Path(__file__).parent).parts[:-1]
        return CHEAP_LAST.index(folders[0]) if folders and folders[0] in CHEAP_LAST else -1

    items.sort(key=rank)


def pytest_collection_finish():
    """Spare the garbage collector the modules and tests, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_state_directory(tmp_path_factory):
    """Keep the tests' servers off the list of this user's running servers."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def _server_of_this_process(tmp_path_factory):
    with SharedServer(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server
    replayed = replay_file(server.data)
    assert replayed.steps
    assert not replayed.differences


@pytest.fixture(scope="module")
def shared_server(_server_of_this_process):
    """A server with an empty namespace `guest`. A module may use it if it neither stops nor crowds it."""
    return _server_of_this_process.renew()
