"""Fixtures of the gateway's tests."""

import pytest
from gateway_wire import SERVED


@pytest.fixture(params=["one process", "gateway process"])
def _with_and_without_a_gateway_process(request, monkeypatch):
    """Run a test twice. The second time a gateway process's part reads HTTP and passes calls on as frames."""
    monkeypatch.setitem(SERVED, "forwarded", request.param == "gateway process")
