"""The page on clusters does what it says: its lines are taken from it and run, from one machine to a node's loss."""

import json
import re
import shlex
import signal

import pytest
from command_line import aliquot
from places import DOCS

from aliquot.testing.cluster import LiveCluster, LiveNode

PAGE = (DOCS / "how-to" / "cluster.md").read_text(encoding="utf-8")
LINES = [shlex.split(line)[1:] for line in re.findall(r"^ {4}(aliquot .*)$", PAGE, re.MULTILINE)]
WORK = "import aliquot\n\napp = aliquot.App('lab')\n\n\n@app.function\ndef work(n):\n    return n + 1\n"


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path / "head") as made:
        yield made


def lines(*words):
    """Return the lines of the page that begin with these words."""
    found = [line for line in LINES if line[: len(words)] == list(words)]
    assert found, f"the page has no line `aliquot {' '.join(words)}`"
    return found


def join(cluster, line, folder):
    """Start a node as a line of the page says, with the test's address, token and folder."""
    address, token = line[2], line[line.index("--token") + 1]
    at = line.index("--data") + 1
    name = line[line.index("--name") + 1]
    found = cluster.token()
    here = {address: found["address"], token: found["token"], line[at]: str(folder / name)}
    command = [here.get(word, word) for word in line]
    program = cluster.node_command(name)[:3]
    cluster.nodes[name] = LiveNode(name, [*program, *command], folder / f"{name}.log").start()
    cluster.wait_for_state(name, "ready")


def invoke(n, folder):
    return json.loads(aliquot("invoke", "lab.work", "-p", "n", str(n), cwd=folder))["value"]


def test_a_reader_gets_from_one_machine_to_three_and_through_a_loss(cluster, tmp_path, monkeypatch):
    assert "--cluster" in lines("up")[0]
    for line in lines("node", "join"):
        join(cluster, line, tmp_path)
    monkeypatch.setenv("ALIQUOT_DATA", str(cluster.data))
    listed = json.loads(aliquot(*lines("node", "list")[0], "--json", cwd=tmp_path))
    assert [node["name"] for node in listed] == ["head", "gpu-2", "gpu-3"]
    (tmp_path / "work.py").write_text(WORK)
    aliquot(*lines("deploy")[0], cwd=tmp_path)
    assert invoke(1, tmp_path) == 2

    cluster.nodes["gpu-2"].signal_agent(signal.SIGKILL)
    assert invoke(2, tmp_path) == 3
    cluster.wait_for_state("gpu-2", "ready")
    assert "gpu-2: ready" in aliquot(*lines("node", "show")[0], cwd=tmp_path)

    assert "drained" in aliquot(*lines("node", "drain")[0], cwd=tmp_path)
    assert "ready" in aliquot(*lines("node", "undrain")[0], cwd=tmp_path)
    aliquot(*lines("node", "remove")[0], cwd=tmp_path)
    assert cluster.nodes["gpu-2"].process.wait(100) == 1
    before = aliquot("node", "token", cwd=tmp_path)
    assert aliquot(*lines("node", "token")[0], cwd=tmp_path) != before
    assert invoke(3, tmp_path) == 4
