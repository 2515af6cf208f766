"""Deployment by the SDK: the requests that it sends to the platform, and when."""

import subprocess
import sys
import threading

import httpx
import pytest
from places import SUPPORT

import aliquot
from aliquot.sdk.errors import UsageError


def action(stub, name):
    user, _, password = stub.local["key"].partition(":")
    return httpx.get(f"{stub.local['url']}/api/v1/namespaces/_/actions/{name}", auth=(user, password)).json()


def annotations(stub, name):
    return {pair["key"]: pair["value"] for pair in action(stub, name)["annotations"]}


def test_what_the_decorator_says_reaches_the_action(sample, stub):
    sample.app.deploy()
    double = action(stub, "sample.double")
    assert double["exec"] == {"kind": "python:3.11", "code": (SUPPORT / "sample.py").read_text(), "main": "double"}
    assert double["limits"] == {"timeout": 5000, "memory": 2048}
    said = annotations(stub, "sample.double")
    assert len(said.pop("sdk-digest")) == 64
    assert said == {
        "sdk": True,
        "sdk-app": "sample",
        "sdk-file": "sample.py",
        "gpu-share": 0.25,
        "gpu-memory": 1536,
        "imports": ["json"],
    }
    said = annotations(stub, "sample.mirror")
    assert (said["rerun"], said["weight"]) == (True, 2)
    assert action(stub, "sample.where")["limits"] == {"timeout": 60000, "memory": 256}


def test_what_has_not_changed_is_not_deployed_again(sample, stub):
    sample.app.deploy()
    before = stub.counts()["PUT"]
    assert [done.changed for done in sample.app.deploy()] == [False] * 7
    assert sample.double.remote(1) == 2
    assert stub.counts()["PUT"] == before


def test_first_calls_at_once_deploy_once(sample, stub):
    user, _, password = stub.local["key"].partition(":")
    httpx.delete(f"{stub.local['url']}/api/v1/namespaces/_/actions/sample.slow", auth=(user, password))
    before = stub.counts()["PUT"]
    threads = [threading.Thread(target=sample.slow.remote, args=(0,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stub.counts()["PUT"] == before + 1


def test_a_function_that_somebody_deleted_is_deployed_again(sample, stub):
    sample.double.remote(1)
    user, _, password = stub.local["key"].partition(":")
    httpx.delete(f"{stub.local['url']}/api/v1/namespaces/_/actions/sample.double", auth=(user, password))
    assert sample.double.remote(2) == 4


def run(folder, script, stub):
    (folder / "main.py").write_text(script)
    environment = {"ALIQUOT_DATA": str(stub.folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "main.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_script_may_define_and_call_with_classes_of_its_own(stub, tmp_path):
    done = run(
        tmp_path,
        "import aliquot\n"
        "app = aliquot.App('script')\n"
        "class Box:\n    def __init__(self, held): self.held = held\n"
        "@app.function\ndef pack(held: Box) -> Box:\n    return Box([held.held])\n"
        "if __name__ == '__main__':\n    print(pack.remote(Box(1)).held)\n",
        stub,
    )
    assert (done.stdout, done.stderr) == ("[1]\n", "")


def test_neighbours_are_included_or_their_absence_is_said(stub, tmp_path):
    (tmp_path / "neighbour.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "three.txt").write_text("3")
    script = (
        "import aliquot\nimport neighbour\napp = aliquot.App('beside'{})\n"
        "@app.function\ndef add(a):\n    return neighbour.add(a, int(open('data/three.txt').read()))\n"
        "if __name__ == '__main__':\n    print(add.remote(4))\n"
    )
    done = run(tmp_path, script.format(""), stub)
    assert (
        "main.py:2 imports neighbour, a neighbour that is not sent along; say App('beside', include=['neighbour.py'])"
        in done.stderr
    )
    done = run(tmp_path, script.format(", include=['neighbour.py', 'data']"), stub)
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_an_app_without_source_is_refused(stub):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import aliquot; app = aliquot.App('x'); f = app.function(print_); f.remote()".replace(
                "print_", "exec('def g(): pass') or g"
            ),
        ],
        env={"ALIQUOT_DATA": str(stub.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "app 'x': the source of g cannot be read, because it was typed at the interactive prompt" in done.stderr


def test_relative_imports_are_refused(tmp_path, stub):
    done = run(
        tmp_path,
        "import aliquot\napp = aliquot.App('x')\n@app.function\ndef f():\n    from . import y\nf.remote()\n",
        stub,
    )
    assert "main.py:5 imports relative to a package, which is not supported" in done.stderr


@pytest.mark.parametrize("include", [["/etc/passwd"], ["../sample.py"], ["nothing.here"]])
@pytest.mark.usefixtures("stub")
def test_only_what_is_below_the_file_is_included(include):
    app = aliquot.App("wide", include=include)
    app.function(test_relative_imports_are_refused)
    with pytest.raises(UsageError, match="include: "):
        app.deploy()
