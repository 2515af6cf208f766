"""Datasets on a real server with a real origin: what functions see, and what is there before they ask."""

import errno
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from fabric_server import READER, FabricServer, digest, run

from aliquot.core.commands import Fetch
from aliquot.live.invocations.journal.replay import replay_file
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.journal import read_journal
from aliquot.testing.waiting import wait_until
from aliquot_bench.origin.link import LinkShape, serve_origin

MB = 1_000_000
FLOW = {"flow/config.json": 10_000, "flow/train.bin": 3 * MB, "flow/weights.bin": 2 * MB}
FILES = {**FLOW, "one.bin": MB, "shared.bin": 4 * MB, "secret.bin": 1000, "import.bin": 1000}
SECRET = "s3cr3t-of-the-origin"  # noqa: S105 - of nobody
FLOW_PATHS = [f"nas/{path}" for path in FLOW]


@pytest.fixture(scope="module")
def link():
    with serve_origin(FILES, LinkShape(40 * MB, 0.001), force="paced") as link:
        yield link


@pytest.fixture(scope="module")
def server(tmp_path_factory, link):
    server = FabricServer(tmp_path_factory.mktemp("datasets") / "data", "--cache-size", "200MB")
    with server:
        server.add("nas", link.url, options={"headers": f'{{"x-secret": "{SECRET}"}}'})
        server.deploy_reader("nas")
        yield server
    assert replay_file(server.data).differences == []
    assert SECRET not in server.log.read_text()
    kept = [file for file in (server.data / "fabric").rglob("*") if file.is_file()]
    assert kept
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]
    journal = list(read_journal(server.data))
    assert journal
    assert not any(SECRET.encode() in entry.body for entry in journal)


def test_a_function_reads_what_the_origin_has(server):
    record = server.read("nas/one.bin")
    assert record["response"]["result"] == {"read": {"nas/one.bin": digest("one.bin", MB)}}
    notes = record["annotations"]
    assert notes["opened"] == {"fetched": 1}
    assert notes["dataTime"] > 0
    assert (notes["prefetched"], notes["wasted"]) == (0, 0)
    again = server.read("nas/one.bin")["annotations"]
    assert again["opened"] == {"cached": 1}
    assert again["dataTime"] < notes["dataTime"]


def test_a_program_that_a_function_starts_reads_it_too(server):
    code = """
import subprocess
def main(args):
    names = subprocess.run(["ls", "/datasets/nas/flow"], capture_output=True, text=True).stdout.split()
    return {"names": names, "bytes": len(subprocess.run(["cat", "/datasets/nas/one.bin"], capture_output=True).stdout)}
"""
    server.deploy_reader("nas", name="starter", code=code)
    result = server.read(name="starter")["response"]["result"]
    assert result == {"names": ["config.json", "train.bin", "weights.bin"], "bytes": MB}


def test_what_is_read_at_import_belongs_to_the_first_call(server):
    code = f"CONTENT = open('/datasets/nas/import.bin', 'rb').read()\n{READER}"
    server.deploy_reader("nas", name="importer", code=code)
    assert server.read(name="importer")["annotations"]["opened"] == {"fetched": 1}
    assert server.read(name="importer")["annotations"]["opened"] == {}


def test_a_dataset_cannot_be_written_to(server):
    code = """
def main(args):
    for act in (lambda: open("/datasets/nas/new", "w"), lambda: open("/datasets/nas/one.bin", "r+b")):
        try:
            act()
        except OSError as error:
            print(type(error).__name__, error.errno)
        else:
            raise RuntimeError("it was written to")
    return {}
"""
    server.deploy_reader("nas", name="writer", code=code)
    assert server.read(name="writer")["response"]["success"]


def test_a_function_without_datasets_has_neither_them_nor_the_annotations(server):
    server.deploy("plain", "import os\ndef main(args): return {'there': os.path.exists('/datasets/nas')}")
    record = server.read(name="plain")
    assert record["response"]["result"] == {"there": False}
    assert not {"dataTime", "prefetched", "wasted", "opened"} & set(record["annotations"])


def test_two_sandboxes_that_ask_for_one_file_share_a_transfer(server, link):
    link._process.send_signal(signal.SIGSTOP)  # until both wait for it
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(server.read, "nas/shared.bin") for _ in range(2)]
        wait_until(lambda: sum(device["running"] for device in server.status()["devices"]) == 2, what="two runs")
        time.sleep(1.5)  # from a start to an open: some hundredths
        link._process.send_signal(signal.SIGCONT)
        records = [call.result() for call in calls]
    expected = {"nas/shared.bin": digest("shared.bin", FILES["shared.bin"])}
    assert [record["response"]["result"]["read"] for record in records] == [expected] * 2
    assert [record["annotations"]["opened"] for record in records] == [{"fetched": 1}] * 2  # both had to wait for it
    assert link.sent_counts().sent["shared.bin"] == FILES["shared.bin"]


def test_the_data_is_there_before_a_cold_function_asks(server):
    """Users repeat a workflow and a model learns it. On a cold node, the next session finds its files prefetched."""
    for _ in range(12):
        session = server.begin_session()
        record = server.read(*FLOW_PATHS, session=session)
        assert record["response"]["success"]
        server.end_session(session)
    assert server.learn()["versions"]
    evict(server)
    server.deploy_reader("nas", code=READER + "# a new revision: none of its sandboxes lives")
    session = server.begin_session()
    wait_until(lambda: server.show("nas")["cached_bytes"], lambda size: size >= sum(FLOW.values()), what="all files")
    record = server.read(*FLOW_PATHS, session=session)
    assert record["response"]["result"]["read"] == {f"nas/{path}": digest(path, size) for path, size in FLOW.items()}
    notes = record["annotations"]
    assert notes["start"] == "cold"
    assert notes["opened"] == {"prefetched": len(FLOW)}
    assert notes["prefetched"] == sum(FLOW.values())
    assert notes["wasted"] == 0
    assert len(notes["prefetchReasons"]) == len(FLOW)
    assert all(reason.startswith("nas/flow/") for reason in notes["prefetchReasons"])
    steps = [step_of(entry) for entry in read_journal(server.data) if entry.number]
    fetches = [command for step in steps for command in step.commands if isinstance(command, Fetch)]
    assert {fetch.path for fetch in fetches} >= set(FLOW)
    assert all(fetch.reason for fetch in fetches)


def evict(server):
    """Empty the cache. A file that a sandbox has just closed may stay a moment longer."""

    def emptied():
        server.as_operator("POST", "/nas/evict").raise_for_status()
        return server.show("nas")["cached_files"] == 0

    wait_until(emptied, what="an empty cache")


def step_of(entry):
    return msgspec.msgpack.decode(entry.body, type=JournalStep)


def test_warming_tells_how_it_goes_and_what_came(server):
    env = {**os.environ, "ALIQUOT_DATA": str(server.data)}
    done = run(sys.executable, "-m", "aliquot", "dataset", "warm", "nas", "flow/*", "one.bin", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "nas: 4 files, 6 MiB, are on the node\n"
    with server.client() as client:
        where = f"{server.url}/api/v1/datasets/nas/warm"
        answer = client.post(where, json={"patterns": ["secret.bin"]})
        assert answer.json() == {"files": 1, "bytes": 1000}
        with client.stream("POST", where, json={}, headers={"accept": "text/event-stream"}) as stream:
            events = [line for line in stream.iter_lines() if line.startswith("event: ")]
    assert events[-1] == "event: result"
    assert set(events) <= {"event: progress", "event: result"}


def test_the_operator_warms_what_is_not_for_its_own_namespace_and_lists_all(server, link):
    server.create_namespace("neighbour")
    server.add("next-door", link.url, namespaces=["neighbour"])
    env = {**os.environ, "ALIQUOT_DATA": str(server.data), "COLUMNS": "160"}
    done = run(sys.executable, "-m", "aliquot", "dataset", "warm", "next-door", "one.bin", env=env)
    assert (done.returncode, done.stdout) == (0, "next-door: 1 file, 977 KiB, is on the node\n"), done.stderr
    listed = run(sys.executable, "-m", "aliquot", "dataset", "list", env=env).stdout
    assert ["next-door", link.url, "neighbour"] in [line.split()[:3] for line in listed.splitlines()]
    with server.client() as client:
        assert client.post(f"{server.url}/operator/v1/datasets/next-door/warm", json={}).status_code == 401


@pytest.mark.parametrize("address", ["nas.lab:/srv/data", "nas.lab::module/data", "user@nas.lab:data"])
def test_an_address_of_rsyncs_is_no_folder_of_this_machine(server, address):
    env = {**os.environ, "ALIQUOT_DATA": str(server.data)}
    added = run(sys.executable, "-m", "aliquot", "dataset", "add", "far", address, "--no-check", env=env)
    assert (added.returncode, added.stdout) == (0, f"far: {address}, seen by all\n"), added.stderr
    assert server.as_operator("DELETE", "/far").json()["origin"] == "rsync"


def test_whoever_watches_sees_the_cache(server):
    figures = wait_until(server.figures, lambda found: found.get("bytes", 0) > 0, what="figures of the cache")
    assert figures["limit_bytes"] == 200 * MB
    assert figures["opens_fetched"] > 0
    page = server.metrics()
    for name in ("cache_bytes", "cache_hits_total", "prefetched_bytes_total", "prefetch_wasted_bytes_total"):
        assert f"\naliquot_{name} " in page
    env = {**os.environ, "ALIQUOT_DATA": str(server.data), "COLUMNS": "160"}
    done = run(sys.executable, "-m", "aliquot", "top", "--once", env=env)
    assert "datasets  files here" in done.stdout, done.stderr


def test_a_dataset_of_others_is_none(server, link):
    stranger = server.create_namespace("stranger")
    server.add("theirs", link.url, namespaces=["stranger"])
    with server.client() as client, server.client(stranger) as other:
        body = {
            "exec": {"kind": "python:3.11", "code": READER},
            "annotations": [{"key": "datasets", "value": ["theirs"]}],
        }
        refused = client.put("actions/nosy", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"] == (
            "annotation datasets: there is no dataset 'theirs' for namespace guest; there are nas"
        )
        assert client.get(f"{server.url}/api/v1/datasets/theirs").status_code == 404
        assert client.post(f"{server.url}/api/v1/datasets/theirs/warm", json={}).status_code == 404
        other.put("packages/open", json={"publish": True}).raise_for_status()
        other.put("actions/open/reader", json=body).raise_for_status()
        named = {"blocking": "true"}
        mine = other.post("actions/open/reader", params=named, json={"paths": ["theirs/one.bin"]}).json()
        assert mine["response"]["result"]["read"] == {"theirs/one.bin": digest("one.bin", MB)}
        where = f"{server.url}/api/v1/namespaces/stranger/actions/open/reader"
        foreign = client.post(where, params=named, json={"paths": ["theirs/one.bin"]}).json()
        assert "there is no dataset 'theirs' for namespace guest" in foreign["response"]["result"]["error"]


def test_readers_of_a_dataset_that_is_taken_from_them_do_not_go_on(server, link):
    server.add("lent", link.url)
    server.deploy_reader("lent", name="lender")
    assert server.read("lent/one.bin", name="lender")["response"]["success"]
    server.add("lent", link.url, namespaces=["stranger"])
    record = server.read("lent/one.bin", name="lender")
    assert "there is no dataset 'lent' for namespace guest" in record["response"]["result"]["error"]


def test_a_call_that_runs_while_its_dataset_is_taken_from_it_does_not_see_the_next_of_that_name(server, link, tmp_path):
    (tmp_path / "theirs.bin").write_text("not for guest")
    server.add("turned", link.url)
    server.deploy_reader("turned", name="turner")
    paths = ["turned/one.bin", "turned/theirs.bin"]
    with ThreadPoolExecutor(1) as calls:
        call = calls.submit(server.read, *paths, name="turner", pause=2)
        wait_until(lambda: server.show("turned")["cached_files"], what="a cached file")
        server.add("turned", str(tmp_path), namespaces=["stranger"])
        record = call.result()
    assert record["annotations"]["start"] == "cold"
    assert record["response"]["result"]["read"] == {paths[0]: digest("one.bin", MB), paths[1]: errno.ENOENT}
