"""Models on a real server: learned from its access log, shown, chosen and rolled back, over HTTP and by the CLI."""

import subprocess
import sys

import httpx
import pytest

from aliquot.storage.log import AccessLog
from aliquot.storage.records import FileAccess, Found
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

FILES = ("config.json", "shard-0", "shard-1", "base.ckpt")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    data = tmp_path_factory.mktemp("models") / "data"
    log = AccessLog(data / "fabric" / "accesses.db")
    for number in range(16):
        for place, file in enumerate(FILES):
            when = 1000.0 * number + place
            log.add(
                FileAccess(when, "ann", f"s{number}", "train", f"i{number}", "data", file, 100, "open", 0, Found.CACHED)
            )
    log.close()
    with LiveServer(data) as made:
        yield made


@pytest.fixture
def operator(server):
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.operator}"}, timeout=60) as made:
        yield made


def aliquot(server, *arguments):
    command = [sys.executable, "-m", "aliquot", "model", *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_version_is_learned_shown_chosen_and_taken_back(server, operator):
    assert operator.get("/operator/v1/models").json()["versions"] == []
    refused = operator.post("/operator/v1/models/rollback")
    assert refused.status_code == 409
    assert "no version that served before" in refused.json()["error"]
    begun = operator.post("/operator/v1/models/train")
    assert begun.status_code == 202
    state = wait_until(
        lambda: operator.get("/operator/v1/models").json(),
        lambda state: not state["training"]["running"],
        what="the training's end",
    )
    assert state["training"]["error"] == ""
    assert state["serving"]["version"] == 1
    assert state["versions"][0]["manifest"]["scores"]["markov1"]["top1"] > 0.7
    none = operator.post("/operator/v1/models/use", json={"predictor": "none"}).json()
    assert none["model"] == "none (version 1)"
    assert operator.post("/operator/v1/models/use", json={"version": 7}).status_code == 409
    assert operator.post("/operator/v1/models/use", json={"vresion": 7}).status_code == 400
    auto = operator.post("/operator/v1/models/use", json={}).json()
    assert auto["model"] == state["model"]
    listed = aliquot(server, "list")
    assert "serves" in listed.stdout, listed.stderr
    shown = aliquot(server, "show")
    assert "tables.msgpack" in shown.stdout
    assert "markov2" in shown.stdout
    again = aliquot(server, "train")
    assert "version 2: not better" in again.stdout, again.stderr
    assert "markov1 (version 2)" in aliquot(server, "use", "2", "--predictor", "markov1").stdout
    back = aliquot(server, "rollback")
    assert "(version 1)" in back.stdout, back.stderr
    assert operator.get("/operator/v1/models").json()["serving"]["pinned"]
    auto = aliquot(server, "use", "auto", "--predictor", "none")
    assert "none (version 1)" in auto.stdout, auto.stderr
    assert not operator.get("/operator/v1/models").json()["serving"]["pinned"]
    wrong = aliquot(server, "use", "7")
    assert wrong.returncode != 0
    assert "there is no version 7; there are 1, 2" in wrong.stderr


def test_models_are_the_operators_alone(server):
    with server.client() as tenant:
        assert tenant.get(f"{server.url}/operator/v1/models").status_code == 401
        assert tenant.post(f"{server.url}/operator/v1/models/train").status_code == 401
