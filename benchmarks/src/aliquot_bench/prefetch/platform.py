"""A real server with the origin's files as a dataset, and the sessions that users run on it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from aliquot.testing.client import NamespaceClient, from_pairs, result_of, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.origin.link import ServedOrigin
from aliquot_bench.prefetch.trial import SessionTrial, make_trial, moved_between
from aliquot_bench.prefetch.workload import ReadSession

DATASET = "lab"
FUNCTION = "reader"
CODE = Path(__file__).with_name("functions") / "reader.py"
MAX_RUN_MS = 300_000  # time limit of one call
COLD_SANDBOXES = ("--keepalive", "fixed_ttl", "--set", "fixed_ttl.ttl_s=0")  # every call starts a new sandbox
SETTLE_S = 0.1  # until transfers that the end of a session cancels have left the link


class PrefetchPlatform:
    """A running server that keeps no idle sandbox, so that every session meets a cold one, as on a cold node."""

    def __init__(
        self, server: LiveServer, link: ServedOrigin, clients: dict[str, NamespaceClient], *, shared: bool
    ) -> None:
        self._server, self._link, self._clients, self._shared = server, link, clients, shared

    def measure(self, session: ReadSession, lead_s: float = 0, *, plain: bool = False) -> SessionTrial:
        """Run a session, and count the bytes that the origin sent from its creation to its end."""
        before = self._link.sent_counts().sent
        trial = self.run(session, lead_s, plain=plain)
        time.sleep(SETTLE_S)
        return replace(trial, moved=moved_between(before, self._link.sent_counts().sent))

    def run(self, session: ReadSession, lead_s: float = 0, *, plain: bool = False) -> SessionTrial:
        """Create the session, wait for `lead_s`, call the reader, and end the session.

        With `plain` the reader reads from the origin itself instead of from the dataset.
        """
        client = self._clients[session.user]
        args: dict[str, Any] = {"files": [file.path for file in session.files], "dataset": DATASET}
        if plain:
            args["origin"] = self._link.url
        created = time.monotonic()
        with client.session(session.user, session.user if self._shared else "") as session_id:
            time.sleep(max(0.0, created + lead_s - time.monotonic()))
            sent_at = time.monotonic()
            record = client.call(FUNCTION, args, session=session_id)
        result = result_of(FUNCTION, record)
        trial = make_trial(session, lead_s, sent_at, result, from_pairs(record["annotations"]))
        if trial.read_bytes != session.bytes:
            raise MeasurementError(f"{session.user} read {trial.read_bytes} bytes, not {session.bytes}")
        return trial

    def add_dataset(self) -> None:
        """Register the origin's files as a dataset, and list them."""
        self._server.operate("PUT", f"datasets/{DATASET}", json={"url": self._link.url})
        self._server.operate("GET", f"datasets/{DATASET}")

    def preload(self) -> None:
        """Fetch all files of the dataset into the cache, by `aliquot dataset warm`."""
        environment = {**os.environ, "ALIQUOT_DATA": str(self._server.data)}
        for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "aliquot", "dataset", "warm", DATASET]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise MeasurementError(f"aliquot dataset warm: {(done.stderr or done.stdout).strip()[-400:]}")

    def empty_cache(self) -> None:
        """Evict all cached files. The list of files and the models stay."""
        self._server.operate("POST", f"datasets/{DATASET}/evict")
        self._server.operate("GET", f"datasets/{DATASET}")

    def train(self) -> str:
        """Train on the access log, and return the name of the model that is then in use."""
        return self._server.train_models()


@contextmanager
def serving(link: ServedOrigin, users: Sequence[str], *options: str, tenant: str = "") -> Iterator[PrefetchPlatform]:
    """Start a server on which every user is a tenant, or on which all are users of `tenant`."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        egress = f"all,{urlsplit(link.url).netloc}"  # the reader of the plain mount asks a server of this machine
        server = stack.enter_context(LiveServer(folder / "data", *COLD_SANDBOXES, "--egress", egress, *options))
        clients = {
            name: stack.enter_context(server.client(server.create_namespace(name), timeout=MAX_RUN_MS / 1000))
            for name in ([tenant] if tenant else users)
        }
        platform = PrefetchPlatform(
            server, link, {user: clients[tenant or user] for user in users}, shared=bool(tenant)
        )
        platform.add_dataset()
        code, datasets = CODE.read_text(encoding="utf-8"), to_pairs({"datasets": [DATASET]})
        for client in clients.values():
            client.deploy(FUNCTION, code, annotations=datasets, limits={"timeout": MAX_RUN_MS})
        yield platform
