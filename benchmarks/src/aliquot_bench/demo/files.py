"""A cold function whose files were there before it asked: a dataset behind a slow link, and sessions that repeat."""

import time

import httpx
from msgspec import Struct

from aliquot.testing.server import LiveServer
from aliquot_bench.origin.link import LinkShape, serve_origin

MB = 1_000_000
LINK = LinkShape(bytes_per_s=50 * MB, latency_s=0.002)
FILES = {"config.json": 2_000, "photos/1.bin": 12 * MB, "photos/2.bin": 12 * MB, "weights.bin": 24 * MB}
DATASET, FUNCTION, TENANT = "photos", "train", "studio"
SESSIONS = 9  # to learn from
LEAD_S = 1.5  # between a session's beginning and its call
POLL_S = 0.1
CODE = """
import os
from pathlib import Path

def main(args):
    folder = Path(os.environ["ALIQUOT_DATASETS"]) / args["dataset"]
    return {"bytes": sum(len((folder / name).read_bytes()) for name in args["files"])}
"""


class FileWait(Struct, frozen=True):
    """What a cold call waited for its files, as its record tells it."""

    seconds: float
    cold: bool
    bytes: int
    prefetched_bytes: int


class FilesResult(Struct, frozen=True):
    """The same call twice on an empty cache: as a stranger, and once its sessions are known."""

    stranger: FileWait
    known: FileWait
    model: str

    @property
    def ok(self) -> bool:
        """Whether it is as said: both calls cold, all files brought before or on their way, and it waited less."""
        cold = self.stranger.cold and self.known.cold
        return cold and self.known.prefetched_bytes == self.known.bytes and self.known.seconds < self.stranger.seconds

    def text(self) -> str:
        saved = self.stranger.seconds - self.known.seconds
        store = f"a store behind a link of {LINK.bytes_per_s / MB:.0f} MB/s"
        return (
            f"Files: a cold function read {self.known.bytes / MB:.0f} MB from {store}. The first time it waited"
            f" {self.stranger.seconds:.2f} s for them. After {SESSIONS} sessions, which {self.model} learned, and on an"
            f" empty cache again, they were there before it asked: it waited {1000 * self.known.seconds:.2g} ms,"
            f" {saved:.2f} s less."
        )


class FilesSkipped(Struct, frozen=True):
    """Datasets need what this machine may not have; that is no fault of the rest."""

    why: str
    ok: bool = True

    def text(self) -> str:
        return f"Files: not shown, for the call failed: {self.why}"


class CallError(Exception):
    """What a call said that failed."""


def show_files(server: LiveServer) -> FilesResult | FilesSkipped:
    """Some ten seconds: a first session, more to learn from, and one whose files are foreseen."""
    try:
        return _show(server)
    except CallError as error:
        return FilesSkipped(str(error))


def _show(server: LiveServer) -> FilesResult:
    with serve_origin(FILES, LINK, force="paced") as link:
        server.operate("PUT", f"datasets/{DATASET}", json={"url": link.url})
        key = server.create_namespace(TENANT)
        with server.client(key) as client:
            stranger = _first_call(client)
            for _ in range(SESSIONS - 1):
                _session(client)
            model = _learn(server)
            server.operate("POST", f"datasets/{DATASET}/evict")
            return FilesResult(stranger, _first_call(client, LEAD_S), model)


def _first_call(client: httpx.Client, lead_s: float = 0) -> FileWait:
    """In a sandbox of its own: the function is deployed anew."""
    action = {
        "exec": {"kind": "python:3.11", "code": CODE},
        "annotations": [{"key": "datasets", "value": [DATASET]}],
    }
    client.put(f"actions/{FUNCTION}", params={"overwrite": "true"}, json=action).raise_for_status()
    return _session(client, lead_s)


def _session(client: httpx.Client, lead_s: float = 0) -> FileWait:
    sessions = client.base_url.join("/api/v1/sessions")
    session = client.post(sessions, json={"name": TENANT}).raise_for_status().json()["sessionId"]
    time.sleep(lead_s)
    query = {"blocking": "true", "session": session}
    answer = client.post(f"actions/{FUNCTION}", params=query, json={"dataset": DATASET, "files": list(FILES)})
    client.delete(f"{sessions}/{session}")
    record = answer.json()
    if not answer.is_success:
        raise CallError(str(record.get("response", record)))
    told = {note["key"]: note["value"] for note in record["annotations"]}
    return FileWait(
        told["dataTime"] / 1000,
        told["start"] == "cold",
        record["response"]["result"]["bytes"],
        told["prefetched"],
    )


def _learn(server: LiveServer) -> str:
    """What serves once the log has been learned from."""
    state = server.operate("POST", "models/train")
    while state["training"]["running"]:
        time.sleep(POLL_S)
        state = server.operate("GET", "models")
    return str(state["model"]).partition(" ")[0]
