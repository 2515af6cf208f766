"""The Serverless framework with its OpenWhisk plugin deploys, calls and removes a service."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from npm_client import NODE, needs_node

pytestmark = [needs_node, pytest.mark.long]

MODULES = Path(sys.prefix) / "serverless" / "node_modules"  # `make .venv/serverless.stamp` puts them there
SERVICE = Path(__file__).parent / "serverless" / "service"


class Serverless:
    def __init__(self, folder, server):
        assert MODULES.is_dir(), "`make .venv/serverless.stamp` sets it up"
        self.service = shutil.copytree(SERVICE, folder / "service")
        (folder / "node_modules").symlink_to(MODULES)  # beside the service: what is in it would be deployed too
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OW_APIHOST": server.url,
            "OW_AUTH": server.key,
            "OW_NAMESPACE": server.namespace,
            "OW_APIGW_ACCESS_TOKEN": "token",
            "SLS_TELEMETRY_DISABLED": "1",
            "SLS_NOTIFICATIONS_MODE": "off",
            "CI": "1",
        }

    def run(self, *command):
        """Run the Serverless framework and return its output."""
        ran = subprocess.run(
            [NODE, "../node_modules/serverless/bin/serverless.js", *command],
            cwd=self.service,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Failed to" not in ran.stdout + ran.stderr
        return ran.stdout

    def invoke(self, function, **data):
        return json.loads(self.run("invoke", "--function", function, "--data", json.dumps(data)))


@pytest.fixture(scope="module")
def sls(tmp_path_factory, server):
    return Serverless(tmp_path_factory.mktemp("serverless"), server)


def names(server, collection):
    with server.client() as client:
        return sorted(item["name"] for item in client.get(collection).raise_for_status().json())


def test_a_service_is_deployed_called_and_removed(sls, server):
    shown = sls.run("deploy")
    assert "shop-dev-greet" in shown
    assert names(server, "actions") == ["count", "shop-dev-both", "shop-dev-every", "shop-dev-greet"]
    assert names(server, "packages") == ["tools"]
    assert names(server, "triggers") == ["shop_every_schedule_trigger", "visitor"]
    assert names(server, "rules") == ["shop_every_schedule_rule", "shop_visitor_to_greet"]

    assert sls.invoke("greet", name="Ann") == {"text": "Hello, Ann"}
    assert sls.invoke("count", text="four") == {"count": 4, "unit": "letters"}
    assert sls.invoke("both", name="Bob") == {"count": len("Hello, Bob"), "unit": "letters"}
    assert "counting four" in sls.run("logs", "--function", "count")

    with server.client() as client:
        (api,) = client.get(f"{server.url}/api/v1/web/whisk.system/apimgmt/getApi").raise_for_status().json()["apis"]
        assert client.post("triggers/visitor", json={"name": "Eve"}).status_code == 202
    url = api["value"]["gwApiUrl"]
    assert httpx.get(f"{url}/greet", params={"name": "Cleo"}).json() == {"text": "Hello, Cleo"}
    web = f"{server.url}/api/v1/web/guest/default/shop-dev-greet.json"
    assert httpx.get(web).status_code == 401  # the plugin keeps it for the route alone

    sls.run("deploy")  # again, over what is there
    assert sls.invoke("greet", name="Ann") == {"text": "Hello, Ann"}

    sls.run("remove")
    for collection in ("actions", "packages", "triggers", "rules"):
        assert names(server, collection) == []
    assert httpx.get(f"{url}/greet").status_code == 404
