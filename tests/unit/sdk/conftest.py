"""The stand-in platform, in a process of its own, for as long as a module's tests run."""

import json
import subprocess
import sys

import httpx
import pytest
from places import SUPPORT

from aliquot.testing.waiting import wait_until


class Stub:
    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, SUPPORT / "stub_server.py", folder], cwd=folder)
        ready = folder / "local.json"
        wait_until(lambda: ready.exists() or self.process.poll() is not None, what="the stub server to listen")
        assert ready.exists(), f"the stub server ended with {self.process.returncode}"
        self.local = json.loads((folder / "local.json").read_text())

    def counts(self, **changes):
        return httpx.get(f"{self.local['url']}/stub", params=changes).json()

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def stub_process(tmp_path_factory):
    stub = Stub(tmp_path_factory.mktemp("stub"))
    yield stub
    stub.stop()


@pytest.fixture
def stub(stub_process, monkeypatch):
    monkeypatch.setenv("ALIQUOT_DATA", str(stub_process.folder))
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    return stub_process


@pytest.fixture
def sample(stub, monkeypatch):  # noqa: ARG001 - it calls the stub
    """The sample app, as new as in a process that has just begun."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    sys.modules.pop("sample", None)
    import sample

    yield sample
    sys.modules.pop("sample", None)
