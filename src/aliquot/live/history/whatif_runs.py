"""Run `aliquot whatif` beside the server, one question at a time, and keep the last answer."""

import asyncio
import json
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from aliquot.live.store.base import Store
from aliquot.policies.queueing import QUEUEING

MAX_RUN_S = 600
MAX_LAST_S = 24 * 3600
MAX_POLICIES = 8
_MAX_ERROR_CHARACTERS = 2000


class WhatIfBusyError(Exception):
    """A question is being answered already, or there is no journal. The text says what to do."""


class WhatIfQuestion(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The policies to simulate the last calls with, and what else is changed."""

    policies: Annotated[list[str], Meta(min_length=1, max_length=MAX_POLICIES)]
    last_seconds: Annotated[int, Meta(ge=1, le=MAX_LAST_S)] = 3600
    devices: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    weights: dict[str, float] = {}

    def problem(self) -> str | None:
        """Return what is wrong with it, or None. Policies from files are for the command line alone."""
        for name in self.policies:
            if name not in QUEUEING:
                return f"policies: there is no '{name}'; it takes some of {', '.join(QUEUEING)}"
        if len(set(self.policies)) < len(self.policies):
            return "policies: each takes part once"
        for tenant in self.weights:
            if "=" in tenant or tenant.startswith("-"):
                return f"weights: '{tenant}' is not the name of a namespace"
        return None

    def arguments(self) -> list[str]:
        """Return it as arguments of the command."""
        found = ["--last", f"{self.last_seconds}s", "--policy", ",".join(self.policies)]
        if self.devices is not None:
            found += ["--devices", str(self.devices)]
        for tenant, weight in self.weights.items():
            found += ["--tenant-weight", f"{tenant}={weight!r}"]
        return found


class WhatIfPhase(StrEnum):
    """The state of the last question."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class WhatIfState(Struct, frozen=True, rename="camel"):
    """The policies there are, and the last question with its answer."""

    policies: list[str]
    phase: WhatIfPhase
    question: WhatIfQuestion | None = None
    report: dict[str, Any] | None = None
    error: str = ""


class WhatIfRuns:
    """Answers the operator's questions in a process of lowest priority."""

    def __init__(self, store: Store, data: Path | None) -> None:
        """Without a data folder there is no journal to read."""
        self._store = store
        self._data = data
        self._task: asyncio.Task[None] | None = None
        self._state = WhatIfState(list(QUEUEING), WhatIfPhase.NONE)

    @property
    def state(self) -> WhatIfState:
        return self._state

    def ask(self, question: WhatIfQuestion) -> None:
        """Begin to answer. Raises `WhatIfBusyError`."""
        if self._data is None:
            raise WhatIfBusyError("this server keeps no journal")
        if self._task is not None and not self._task.done():
            raise WhatIfBusyError("another question is being answered; wait for it, or cancel it")
        self._set(WhatIfPhase.RUNNING, question)
        self._task = asyncio.create_task(self._answer(self._data, question))

    async def cancel(self) -> None:
        """End the question that is being answered, if there is one."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._set(WhatIfPhase.FAILED, self._state.question, error="it was cancelled")

    def _set(
        self,
        phase: WhatIfPhase,
        question: WhatIfQuestion | None,
        report: dict[str, Any] | None = None,
        error: str = "",
    ) -> None:
        self._state = WhatIfState(list(QUEUEING), phase, question, report, error)

    async def _answer(self, data: Path, question: WhatIfQuestion) -> None:
        await self._store.flush()  # so that the last steps are on disk
        folder = Path(tempfile.mkdtemp(prefix="aliquot-whatif-"))
        try:
            report = folder / "report.json"
            process = await asyncio.create_subprocess_exec(
                "timeout", str(MAX_RUN_S), "nice", "-n", "19", sys.executable, "-m", "aliquot", "whatif",
                "--data", str(data), "--json", str(report), *question.arguments(),
                stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE,
            )  # fmt: skip
            said = await _ended(process)
            if process.returncode == 0:
                self._set(WhatIfPhase.DONE, question, json.loads(report.read_bytes()))
            else:
                self._set(WhatIfPhase.FAILED, question, error=_reason(said, process.returncode))
        except OSError as error:
            self._set(WhatIfPhase.FAILED, question, error=f"it cannot run: {error.strerror}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


async def _ended(process: Process) -> bytes:
    """Wait for the process, or end it with this task."""
    try:
        _, said = await process.communicate()
        return said
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()  # `timeout` passes it on
            await process.wait()


def _reason(said: bytes, code: int | None) -> str:
    if code == 124:  # noqa: PLR2004 - of `timeout`
        return f"it took more than {MAX_RUN_S} s; ask about a shorter time"
    text = said.decode(errors="replace").strip()
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"]["message"])
    return text[-_MAX_ERROR_CHARACTERS:] or f"it ended with code {code}"
