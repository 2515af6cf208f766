"""The inside of a Python sandbox: initialises one function, or those of a group, then runs them, a request at a time.

What the server gets is a status and bytes; after a developer error the sandbox is spent and the server kills it.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, NoReturn  # noqa: UP035 - Python 3.9 on

from . import answers, executed, frames, inside, program, runs, walls
from .answers import Answer
from .frames import SUCCESS
from .group import Group
from .output import OutputPipes, flush_streams
from .side import Side

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

TWICE = "Cannot initialize the action more than once."
NOT_READY = "The action is not initialized."


class Launcher:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._output = OutputPipes()
        self._main: Callable[..., Any] | None = None
        self._group: Group | None = None
        self._side: Side | None = None
        self._sdk = False
        self._result_bytes = 0
        self._env = b"{}"  # of the last run
        self._variables: dict[str, str] = {}

    def serve(self) -> NoReturn:
        """Until the server hangs up, or the function ends the process."""
        sock = self._sock
        try:
            request, fds = frames.receive_first(sock)
            if fds:
                self._side = Side(fds[0])
            while True:
                answer = self._answer(*request)
                # Before the reply: when it arrives, all output is in the pipes.
                printed = self._output.flush()
                frames.send(sock, *answer, printed=printed)
                request = frames.receive(sock)
        except SystemExit as leaving:
            flush_streams()
            os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
        except (EOFError, OSError):
            os._exit(0)  # the server has gone

    def _answer(self, what: int, parcel: int, first: bytes, second: bytes | memoryview) -> Answer:
        if what == frames.INIT:
            return self._init(json.loads(first))
        if what == frames.RUN_GROUP and self._group is not None:
            return self._group.run(json.loads(first), second, parcel)
        if self._main is None:
            return answers.failed(NOT_READY)
        if what == frames.RUN_HANDED:
            return self._run_handed(json.loads(first), second, parcel)
        if first != self._env:
            self._set_environment(first)
        if what == frames.RUN:
            return runs.on_json(self._main, second, self._result_bytes, sdk=self._sdk)
        share = what == frames.RUN_SHARED
        return runs.on_pickle(self._main, second, parcel, self._result_bytes, side=self._side, share=share)

    def _run_handed(self, request: dict[str, Any], payload: bytes | memoryview, parcel: int) -> Answer:
        """In a sequence of the SDK's functions."""
        assert self._main is not None  # noqa: S101 - it is initialised
        os.environ.update(request["env"])
        self._env = b""  # they are not those of the last run
        self._variables = {}
        side = self._side if request["hand_on"] else None
        try:
            if request["handed"]:
                value = answers.merged(request["defaults"], runs.loaded(payload, parcel, self._side))
            else:
                value = answers.decode(str(payload, "utf-8"))
        except MemoryError:
            return answers.failed(answers.OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - a class that is not here, say
            return runs.raised(error)
        return runs.on_value(self._main, value, self._result_bytes, side)

    def _set_environment(self, env: bytes) -> None:
        variables, known = answers.decode(str(env, "utf-8")), self._variables
        for key, value in variables.items():
            if known.get(key) != value:
                os.environ[key] = value  # a microsecond each: most are those of the last run
        self._env, self._variables = env, variables

    def _init(self, description: dict[str, Any]) -> Answer:
        if self._main is not None or self._group is not None:
            return answers.failed(TWICE)
        self._result_bytes = description["result_bytes"]
        if description["data_bytes"]:
            walls.limit_data(description["data_bytes"])
        if description["command"]:
            executed.execute(self._sock, description)
        os.environ.update(description["env"])
        inside.tell(self._side, description.get("desk"))
        try:
            self._load(description)
        except program.InitError as error:
            return answers.failed(str(error))
        except MemoryError:
            return answers.failed(answers.OUT_OF_MEMORY)
        return Answer(SUCCESS, b"{}")

    def _load(self, description: dict[str, Any]) -> None:
        if description.get("members"):
            self._group = Group(description, self._side, self._output)
            self._group.load(description["first"])
        else:
            self._sdk = description["sdk"]
            self._main = program.load(description)
