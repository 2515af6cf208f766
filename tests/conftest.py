"""For all tests: profiles of the property tests (`make test` keeps them short), and signals as in a terminal."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=slow, derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=slow)
settings.load_profile("default")

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_state_directory(tmp_path_factory):
    """Keep the tests' servers off the list of this user's running servers."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
