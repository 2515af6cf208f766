"""The integration tests that the npm client shipped with its version 3.9.0 pass with today's client."""

import os
import re
import shutil
import subprocess

import pytest
from npm_client import MODULES, NODE, needs_node

pytestmark = needs_node

# Changes to the client's own tests, with reasons. The rest runs as it was shipped.
WITH_A_RULE = """
    const rules = new (require('../../lib/rules.js'))(new Client(options))
    const ends = {action: '/whisk.system/utils/echo', trigger: `/${NAMESPACE}/random_fire_test`}
    return rules.create({ruleName: 'random_fire_rule', ...ends})
      .then(() => triggers.invoke({triggerName: 'random_fire_test'}))"""
CHANGES = [
    (
        "actions.test.js",
        "'nodejs:6'",
        "'nodejs:20'",
        "today's client asks for `nodejs:default`, and the default of 2017 is gone from OpenWhisk too",
    ),
    (
        "triggers.test.js",
        "return triggers.invoke({triggerName: 'random_fire_test'})",
        WITH_A_RULE,
        "since 2018 OpenWhisk answers 204 without a body when a trigger has no active rule: it is given one",
    ),
]
TESTS = {
    "actions": 7,
    "activations": 4,
    "feeds": 1,
    "namespaces": 2,
    "packages": 4,
    "routes": 1,
    "rules": 4,
    "triggers": 5,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Today's `lib` beside yesterday's `test/integration`."""
    folder = tmp_path_factory.mktemp("client")
    shutil.copytree(MODULES / "openwhisk" / "lib", folder / "lib")
    tests = shutil.copytree(MODULES / "openwhisk-3.9.0" / "test" / "integration", folder / "test" / "integration")
    for name, before, after, _ in CHANGES:
        text = (tests / name).read_text()
        assert before in text
        (tests / name).write_text(text.replace(before, after))
    (folder / "node_modules").symlink_to(MODULES)
    (folder / "package.json").write_text('{"ava": {"files": ["test/integration/*.test.js"]}}')
    return folder


@pytest.fixture(scope="module")
def ran(server, folder):
    """All of them at once, as the client's own `npm run test-integration` does."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "__OW_API_HOST": server.url,
        "__OW_API_KEY": server.key,
        "__OW_NAMESPACE": server.namespace,
        "__OW_APIGW_TOKEN": "token",
    }
    return subprocess.run(
        [NODE, "node_modules/ava/entrypoints/cli.mjs", "--tap"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("resource", "count"), TESTS.items())
def test_its_own_tests_pass(ran, resource, count):
    passed = re.findall(rf"^ok \d+ - {resource} \W .*", ran.stdout, re.MULTILINE)
    assert len(passed) == count, ran.stdout + ran.stderr
    assert not any("# SKIP" in line for line in passed)


def test_none_of_them_fails_or_is_left_out(ran, folder):
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {path.name.split(".")[0] for path in (folder / "test" / "integration").glob("*.test.js")} == set(TESTS)
