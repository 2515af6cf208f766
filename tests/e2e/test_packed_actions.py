"""Archives and images from the PUT to the result, in real sandboxes."""

import pytest
from sandboxes import needs_nodejs, tarred, zipped

from aliquot.testing.server import LiveServer

BROKEN = "The action failed to generate or locate a binary. See logs for details."
PYTHON = {
    "__main__.py": "import helper\ndef main(args):\n    return {'said': helper.greet(args['name'])}",
    "helper.py": "def greet(name): return open('words').read() + name",
    "words": "hello ",
}
INDEX = "exports.main = (args) => ({ said: require('fs').readFileSync('words', 'utf8') + args.name });"
NODEJS = {"package.json": '{"main": "lib/entry.js"}', "lib/entry.js": INDEX, "words": "hello "}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    images = ("--image", "hub.example/acme/model=python:3", "--image", "acme/other:1=python:3.11")
    data = tmp_path_factory.mktemp("data")
    with LiveServer(data, "--devices", "host:1", *images) as server, server.client() as client:
        yield client


def run(client, name, **exec_):
    put = client.put(f"actions/{name}", params={"overwrite": "true"}, json={"exec": exec_})
    assert put.status_code == 200, put.text
    answer = client.post(f"actions/{name}", params={"blocking": "true"}, json={"name": "you"})
    return put.json()["exec"], answer


def test_a_zip_of_python_runs_its_main(client):
    shown, answer = run(client, "zipped", kind="python:default", code=zipped(PYTHON), binary=False)
    assert (shown["kind"], shown["binary"]) == ("python:3.11", True)
    assert answer.json()["response"]["result"] == {"said": "hello you"}


@needs_nodejs
@pytest.mark.parametrize("files", [NODEJS, {"index.js": INDEX, "words": "hello "}], ids=["package", "index"])
def test_a_zip_of_nodejs_runs_its_package(client, files):
    shown, answer = run(client, "zipped-js", kind="nodejs:default", code=zipped(files))
    assert (shown["kind"], shown["binary"]) == ("nodejs:20", True)
    assert answer.json()["response"]["result"] == {"said": "hello you"}


@pytest.mark.parametrize(
    ("kind", "files"),
    [("python:default", PYTHON), pytest.param("nodejs:default", NODEJS, marks=needs_nodejs)],
    ids=["python", "nodejs"],
)
def test_a_tar_gz_is_code_like_a_zip(client, kind, files):
    shown, answer = run(client, "tarred", kind=kind, code=tarred(files))
    assert shown["binary"]
    assert answer.json()["response"]["result"] == {"said": "hello you"}


@needs_nodejs
def test_a_file_of_the_archive_may_have_the_main_function(client):
    files = {"lib/other.js": "exports.answer = (args) => ({ said: args.name });"}
    _, answer = run(client, "file-main", kind="nodejs:default", code=zipped(files), main="lib/other.answer")
    assert answer.json()["response"]["result"] == {"said": "you"}
    assert "not a function" in run(client, "file-main", kind="nodejs:default", code=zipped(files | {"index.js": ""}),
                                   main="lib/other.nothing")[1].json()["response"]["result"]["error"]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"__main__.py": "", "../escape.py": ""}, "leads out of the archive"),
        ({"__main__.py": "", "zeros": "\0" * 100_000_000}, "looks like a zip bomb"),
        ({"__main__.py": "", "__main__.py/x": ""}, "cannot be unpacked"),
    ],
    ids=["dots", "bomb", "file_and_directory"],
)
def test_a_hostile_zip_is_its_owners_error(client, files, said):
    _, answer = run(client, "hostile", kind="python:3", code=zipped(files))
    record = answer.json()
    assert (answer.status_code, record["response"]["status"]) == (502, "action developer error")
    assert record["response"]["result"] == {"error": BROKEN}
    logs = client.get(f"activations/{record['activationId']}/logs").json()["logs"]
    assert any(said in line for line in logs)


@pytest.mark.parametrize("image", ["hub.example/acme/model", "acme/model:7", "acme/other"])
def test_a_blackbox_runs_as_what_its_image_is_mapped_to(client, image):
    shown, answer = run(client, "box", kind="blackbox", image=image, code=zipped(PYTHON))
    assert (shown["kind"], shown["image"], shown["binary"]) == ("blackbox", image, True)
    record = answer.json()
    assert record["response"]["result"] == {"said": "hello you"}
    assert {"key": "kind", "value": "blackbox"} in record["annotations"]


def test_a_blackbox_without_code_has_nothing_to_run(client):
    _, answer = run(client, "empty", kind="blackbox", image="acme/model")
    assert answer.status_code == 502
    assert answer.json()["response"]["status"] == "action developer error"


def test_an_image_that_is_not_mapped_is_refused(client):
    answer = client.put("actions/unknown", json={"exec": {"kind": "blackbox", "image": "acme/unknown"}})
    assert answer.status_code == 400
    assert "Mapped are: 'hub.example/acme/model', 'acme/other:1'." in answer.json()["error"]
