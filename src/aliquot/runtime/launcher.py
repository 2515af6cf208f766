"""The inside of a Python sandbox: initialises one function, or those of a group, and then runs one request at a time.

The server gets a status and bytes. After a developer error it ends the sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from typing import Any, Callable, NoReturn  # noqa: UP035 - Python 3.9 on

from . import answers, exec_launcher, frames, isolation, objects, program, runs, sdk_support
from .answers import RunAnswer
from .batch import BatchFunction
from .control_channel import ControlChannel
from .frames import SUCCESS
from .group import FunctionGroup
from .output import OutputPipes, flush_streams
from .progress import map_page
from .run_variables import RunVariables
from .runs_ahead import RunsAhead

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

TWICE = "Cannot initialize the action more than once."
NOT_READY = "The action is not initialized."


class Launcher:
    """Serves the requests of one sandbox."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._output = OutputPipes()
        self._main: Callable[..., Any] | None = None
        self._group: FunctionGroup | None = None
        self._channel: ControlChannel | None = None
        self._fds: list[int] = []  # that came with the init: its CPU group and its control channel, if it has them
        self._ahead: RunsAhead | None = None
        self._sdk = False
        self._max_bytes = 0  # of a result
        self._variables = RunVariables()

    def serve(self) -> NoReturn:
        """Answer requests until the server closes the socket or the function ends the process."""
        sock, requests = self._sock, frames.RequestReader(self._sock, _wait_for(self._sock))
        try:
            request, self._fds = frames.receive_first(sock)
            while True:
                if self._ahead is not None and not self._ahead.may_run(request[0]):
                    frames.send(sock, frames.NOT_RUN, b"{}", printed=False)
                    request = requests.receive()
                    continue
                answer = self._answer(*request)
                # Before the reply: when it arrives, all output is in the pipes.
                printed = self._output.flush()
                status, result, pickled, number = answer
                if self._ahead is not None:
                    number = self._ahead.ended(status, printed=printed)
                frames.send(sock, status, result, pickled, number, printed=printed)
                request = requests.receive()
        except SystemExit as leaving:
            flush_streams()
            os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
        except (EOFError, OSError):  # the server has stopped this sandbox, or has ended itself
            program.tear_down()
            os._exit(0)

    def _answer(self, kind: int, buffer: int, first: bytes, second: bytes | memoryview) -> RunAnswer:
        if kind == frames.INIT:
            return self._init(json.loads(first))
        if kind == frames.RUN_GROUP and self._group is not None:
            return self._group.run(json.loads(first), second, buffer)
        if self._main is None:
            return answers.developer_error(NOT_READY)
        if kind == frames.RUN_BATCH:
            request = json.loads(first)
            self._variables.set(request["env"])
            batch = BatchFunction(self._main, self._max_bytes, sdk=self._sdk, channel=self._channel)
            return batch.run(request["items"], second, request["objects"] or [])
        if kind == frames.RUN_HANDED:
            return self._run_handed(json.loads(first), second, buffer)
        self._variables.set(answers.decode(str(first, "utf-8")))
        if kind in (frames.RUN, frames.RUN_AHEAD):
            return runs.run_json(self._main, second, self._max_bytes, sdk=self._sdk, channel=self._channel)
        if (run_file := getattr(self._main, "run_file", None)) is not None:
            return RunAnswer(*run_file(second))
        share = kind == frames.RUN_SHARED
        return runs.run_pickled(self._main, second, buffer, self._max_bytes, channel=self._channel, share=share)

    def _run_handed(self, request: dict[str, Any], payload: bytes | memoryview, buffer: int) -> RunAnswer:
        """Run one step of a sequence of SDK functions, or a task whose arguments have objects."""
        assert self._main is not None  # noqa: S101 - it is initialised
        self._variables.set(request["env"])
        try:
            if request["objects"] is not None:
                value = objects.load_arguments(payload, [], request["objects"], self._channel)
            elif request["handed"]:
                value = answers.merge(request["defaults"], runs.load_payload(payload, buffer, self._channel))
            else:
                value = answers.decode(str(payload, "utf-8"))
        except MemoryError:
            return answers.developer_error(answers.OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - for example a class that is not here
            return runs.print_and_answer(error)
        return runs.run_value(self._main, value, self._max_bytes, self._channel, hands_on=request["hand_on"])

    def _init(self, description: dict[str, Any]) -> RunAnswer:
        if self._main is not None or self._group is not None:
            return answers.developer_error(TWICE)
        self._max_bytes = description["result_bytes"]
        self._take_descriptors(description)
        if description["data_bytes"]:
            isolation.limit_data(description["data_bytes"])
        if description["command"]:
            exec_launcher.execute(self._sock, description)
        os.environ.update(description["env"])
        if description["main"] == frames.EXECUTOR:
            program.hand_over(self._sock, description)
        sdk_support.set_channel(self._channel, description.get("buffers_token"))
        try:
            self._load(description)
        except program.InitError as error:
            return answers.developer_error(str(error))
        except MemoryError:
            return answers.developer_error(answers.OUT_OF_MEMORY)
        return RunAnswer(SUCCESS, b"{}")

    def _take_descriptors(self, description: dict[str, Any]) -> None:
        """Take the descriptors that came with the init, which says what they are."""
        if description.get("cpu_group"):
            _enter_group(self._fds.pop(0))
        if description.get("ahead"):
            self._ahead = RunsAhead(self._fds.pop(0))
        if description.get("progress"):
            description["page"] = map_page(self._fds.pop(0))
        if digests := description.get("constants"):
            description["constants"] = {digest: self._fds.pop(0) for digest in digests}
        if self._fds:
            self._channel = ControlChannel(self._fds.pop())

    def _load(self, description: dict[str, Any]) -> None:
        if description.get("members"):
            self._group = FunctionGroup(description, self._channel, self._output, self._variables)
            self._group.load(description["first"])
        else:
            self._sdk = description["sdk"]
            self._main = program.load(description)


def _wait_for(sock: socket.socket) -> Callable[[], object]:
    """Return a function that waits until there is something to read.

    A process that waits in `recv` itself is woken for nothing when the server reads its reply: the kernel reports free
    space to it.
    """
    readable = select.poll()
    readable.register(sock, select.POLLIN)
    return readable.poll


def _enter_group(fd: int) -> None:
    """Enter a control group. The server checks it afterwards."""
    with contextlib.suppress(OSError):
        os.write(fd, b"0")
    os.close(fd)
