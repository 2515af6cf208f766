"""Endpoints for the operator: the settings of the server, its policies with parameters, its store, and the doctor."""

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from aliquot.config import PolicySettings
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.base import Retention, Store
from aliquot.policies.admission import ADMISSION
from aliquot.policies.batching import BATCHING
from aliquot.policies.eviction import EVICTION
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.packing import PACKING
from aliquot.policies.prefetching import PREFETCHING
from aliquot.policies.provisioning import PROVISIONING
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING
from aliquot.version import __version__

DOCTOR_TIMEOUT_S = 60
DOCTOR_FRESH_S = 60.0
_TABLES: Mapping[str, Mapping[str, type]] = {
    "queueing": QUEUEING,
    "keep-alive": KEEPALIVE,
    "eviction": EVICTION,
    "sharing": SHARING,
    "packing": PACKING,
    "prefetching": PREFETCHING,
    "admission": ADMISSION,
    "batching": BATCHING,
    "provisioning": PROVISIONING,
}


class ServerFacts(Struct, frozen=True):
    """The settings of the server that are shown."""

    policy: PolicySettings = PolicySettings("fair_resident")
    retention: Retention = Retention()
    data: Path | None = None
    gateways: int = 1


class ShownPolicy(Struct, frozen=True):
    """A policy that runs, with the values of its parameters."""

    kind: str
    name: str
    parameters: dict[str, str]
    changed: list[str]  # parameters that are not the default


class ShownStore(Struct, frozen=True, rename="camel"):
    """The files of the data folder, and whether they can be written."""

    problem: str | None
    low_on_space: bool
    backlog: int  # writes that are not on disk yet
    file_bytes: dict[str, int]
    keep_days: float
    keep_bytes: int
    journal_days: float
    journal_bytes: int


class ShownSettings(Struct, frozen=True, rename="camel"):
    """The settings of the operator, and the state of the store."""

    version: str
    gateways: int
    policies: list[ShownPolicy]
    store: ShownStore


class SettingsEndpoints:
    """Handles the operator's questions about the server. No answer has a secret."""

    def __init__(self, platform: Platform, store: Store, facts: ServerFacts) -> None:
        self._platform = platform
        self._store = store
        self._facts = facts
        self._turn = asyncio.Lock()
        self._findings = b""
        self._examined_s = -DOCTOR_FRESH_S

    def endpoints(self) -> list[Endpoint]:
        operator: dict[str, Any] = {"access": EndpointAccess.OPERATOR}
        return [
            Endpoint("GET", "/operator/v1/settings", self.show, "Policies with parameters, and the store",
                     {200: ShownSettings}, **operator),
            Endpoint("GET", "/operator/v1/doctor", self.examine, "What this machine offers and lacks",
                     {200: list[dict[str, Any]]}, **operator, statuses=(503,)),
        ]  # fmt: skip

    async def show(self, _: Request) -> Response:
        facts, store = self._facts, self._store
        kept = facts.retention
        shown = ShownStore(
            store.health.problem,
            store.is_low_on_space,
            store.backlog,
            await asyncio.to_thread(_file_bytes, facts.data),
            kept.activations_s / 86400,
            kept.activations_bytes,
            kept.journal_s / 86400,
            kept.journal_bytes,
        )
        names = self._platform.status(with_processes=False).get("policies", [])
        return json_response(ShownSettings(__version__, facts.gateways, _policies(names, facts.policy), shown))

    async def examine(self, _: Request) -> Response:
        """Run `aliquot doctor` in a process of its own, at most once a minute."""
        async with self._turn:
            if time.monotonic() - self._examined_s >= DOCTOR_FRESH_S:
                self._findings = await _findings(self._facts.data or Path())
                self._examined_s = time.monotonic()
        return Response(200, self._findings)


async def _findings(data: Path) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "nice", sys.executable, "-m", "aliquot", "doctor", "--json", "--data", str(data),
        stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(DOCTOR_TIMEOUT_S):
            out, _ = await process.communicate()
        return msgspec.json.encode(msgspec.json.decode(out, type=list[dict[str, Any]]))
    except (TimeoutError, msgspec.DecodeError) as error:
        raise Refusal(503, "The doctor gave no answer; run aliquot doctor on the machine.") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _policies(names: list[str], settings: PolicySettings) -> list[ShownPolicy]:
    """Describe the policies that run, one of each kind."""
    shown = []
    for kind, table in _TABLES.items():
        for name in names:
            policy = table.get(name)
            if policy is None:
                continue
            given = settings.params.get(name, {})
            usual = {field.encode_name: str(field.default) for field in fields(policy.params_type)}  # type: ignore[attr-defined]
            shown.append(ShownPolicy(kind, name, {**usual, **given}, sorted(given)))
    return shown


def _file_bytes(data: Path | None) -> dict[str, int]:
    """Return the sizes of the files that grow, by name."""
    if data is None:
        return {}
    names = ("aliquot.db", "aliquot.db-wal", "usage.ring")
    return {name: path.stat().st_size for name in names if (path := data / name).exists()}
