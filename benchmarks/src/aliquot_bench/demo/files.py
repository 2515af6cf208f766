"""A cold function whose files are prefetched: a dataset behind a slow link, and sessions that repeat."""

import time

from msgspec import Struct

from aliquot.core.units import MB
from aliquot.testing.client import CallError, NamespaceClient, from_pairs, result_of, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.origin.link import LinkShape, serve_origin

LINK = LinkShape(bytes_per_s=50 * MB, latency_s=0.002)
FILES = {"config.json": 2_000, "photos/1.bin": 12 * MB, "photos/2.bin": 12 * MB, "weights.bin": 24 * MB}
DATASET, FUNCTION, TENANT = "photos", "train", "studio"
TRAINING_SESSIONS = 9
LEAD_S = 1.5  # between the beginning of a session and its call
CODE = """
import os
from pathlib import Path

def main(args):
    folder = Path(os.environ["ALIQUOT_DATASETS"]) / args["dataset"]
    return {"bytes": sum(len((folder / name).read_bytes()) for name in args["files"])}
"""


class FileWait(Struct, frozen=True):
    """The time that a cold call waited for its files, according to its activation record."""

    seconds: float
    cold: bool
    bytes: int
    prefetched_bytes: int


class FilesResult(Struct, frozen=True):
    """The same cold call twice with an empty cache: before and after its sessions were learned."""

    unknown: FileWait
    known: FileWait
    model: str

    @property
    def ok(self) -> bool:
        """Return whether both calls were cold, and the second had all its files prefetched and waited less."""
        cold = self.unknown.cold and self.known.cold
        return cold and self.known.prefetched_bytes == self.known.bytes and self.known.seconds < self.unknown.seconds

    def text(self) -> str:
        saved = self.unknown.seconds - self.known.seconds
        store = f"a store behind a link of {LINK.bytes_per_s / MB:.0f} MB/s"
        return (
            f"Files: a cold function read {self.known.bytes / MB:.0f} MB from {store}. The first time it waited"
            f" {self.unknown.seconds:.2f} s for them. After {TRAINING_SESSIONS} sessions, which {self.model} learned,"
            f" the cache was emptied and the files were prefetched: it waited {1000 * self.known.seconds:.2g} ms,"
            f" {saved:.2f} s less."
        )


class FilesSkipped(Struct, frozen=True):
    """The reason why the machine cannot show datasets. It does not make the demonstration fail."""

    why: str
    ok: bool = True

    def text(self) -> str:
        return f"Files: not shown, because the call failed: {self.why}"


def show_files(server: LiveServer) -> FilesResult | FilesSkipped:
    """Run a first session, more sessions to learn from, and one with prefetching. It takes about ten seconds."""
    with serve_origin(FILES, LINK, force="paced") as link:
        server.operate("PUT", f"datasets/{DATASET}", json={"url": link.url})
        with server.client(server.create_namespace(TENANT)) as client:
            try:
                unknown = _cold_call(client)
            except CallError as error:
                return FilesSkipped(str(error))
            for _ in range(TRAINING_SESSIONS - 1):
                _call_in_session(client)
            model = server.train_models().partition(" ")[0]
            server.operate("POST", f"datasets/{DATASET}/evict")
            return FilesResult(unknown, _cold_call(client, LEAD_S), model)


def _cold_call(client: NamespaceClient, lead_s: float = 0) -> FileWait:
    """Deploy the function again, so that the call starts a new sandbox."""
    client.deploy(FUNCTION, CODE, annotations=to_pairs({"datasets": [DATASET]}))
    return _call_in_session(client, lead_s)


def _call_in_session(client: NamespaceClient, lead_s: float = 0) -> FileWait:
    with client.session(TENANT) as session:
        time.sleep(lead_s)
        record = client.call(FUNCTION, {"dataset": DATASET, "files": list(FILES)}, session=session)
    result, annotations = result_of(FUNCTION, record), from_pairs(record["annotations"])
    return FileWait(
        annotations["dataTime"] / 1000, annotations["start"] == "cold", result["bytes"], annotations["prefetched"]
    )
