"""The server that tests and benchmarks start leaves nothing behind."""

import sys
import tempfile

import pytest

from aliquot.testing.server import LiveServer


class Broken(LiveServer):
    """A server that prints a word and ends before it is ready."""

    def command(self, command):
        return [sys.executable, "-c", "print('farewell')"]


def test_the_output_of_a_server_is_there_until_the_server_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = Broken(tmp_path / "data")
    with pytest.raises(RuntimeError, match="farewell"):
        server.start()
    assert server.log.read_text() == "farewell\n"

    del server
    assert list(tmp_path.iterdir()) == []
