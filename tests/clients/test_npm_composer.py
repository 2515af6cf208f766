"""Compositions that the npm package `openwhisk-composer` makes run end to end, also branches at the same time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from npm_client import HERE, MODULES, NODE, needs_node
from redis_server import served_redis

from aliquot.live.node.kind_packages import DIRECTORY, KindFolder
from aliquot.live.store.records import NODEJS
from aliquot.testing.server import LiveServer

INSTALLED = Path(sys.prefix) / "kinds"  # `make .venv/kinds.stamp` puts them there
TIMEOUT_S = 120
pytestmark = [
    needs_node,
    pytest.mark.skipif(
        KindFolder(INSTALLED, NODEJS).installed() is None,
        reason="the packages of the kinds are not installed; `make tests` installs them if it can",
    ),
]


def test_compositions_branch_loop_catch_errors_and_run_in_parallel(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / DIRECTORY).symlink_to(INSTALLED / DIRECTORY)
    with served_redis() as redis, LiveServer(data, "--egress", f"all,{redis['host']}:{redis['port']}") as server:
        ran = subprocess.run(
            [NODE, HERE / "compose.js", server.url, server.key, f"redis://{redis['host']}:{redis['port']}"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NODE_PATH": str(MODULES)},
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr + server.log.read_text()[-3000:]
        results = json.loads(ran.stdout)
        assert (results["right"], results["wrong"]) == ({"message": "success"}, {"message": "failure"})
        assert results["countdown"] == {"sum": 7, "done": True}
        assert "nothing-of-this-name" in results["caught"]["said"]
        assert results["parallel"] == {"value": [{"side": "left"}, {"side": "right"}]}
