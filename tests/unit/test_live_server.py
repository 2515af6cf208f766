"""The server that tests and benchmarks start leaves nothing behind."""

import sys
import tempfile

import pytest

from aliquot.testing.server import LiveServer


class Broken(LiveServer):
    """A server that prints a word and ends before it is ready."""

    def command(self, command):
        return [sys.executable, "-c", "print('farewell')"]


READY = "import json, sys; json.dump(dict(url='', key='a:b', namespace=''), open(sys.argv[1], 'w'))"


class Brief(LiveServer):
    """A server that says that it is ready, with its key, and ends."""

    def command(self, command):
        return [sys.executable, "-c", READY, command[command.index("--ready-file") + 1]]


def test_the_file_with_the_key_is_gone_once_it_is_read(tmp_path):
    server = Brief(tmp_path / "data", folder=tmp_path)
    server.start()
    server.process.wait()
    assert server.key == "a:b"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["server.log"]


def test_the_output_of_a_server_is_there_until_the_server_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = Broken(tmp_path / "data")
    with pytest.raises(RuntimeError, match="farewell"):
        server.start()
    assert server.log.read_text() == "farewell\n"

    del server
    assert list(tmp_path.iterdir()) == []
