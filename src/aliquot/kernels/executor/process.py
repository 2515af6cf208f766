"""The inside of an executor: one process that serves all graphs of a tenant on a device.

The server sends a byte and three descriptors for each graph: a socket for its requests, and pipes for its output. A
graph has a thread, which answers its requests as a sandbox of its own would. One graph runs at a time, and one is
loaded at a time, beside the run. A graph whose socket is closed is unloaded.
"""

import contextlib
import json
import os
import socket
from threading import Thread
from typing import Any, NoReturn

from aliquot.kernels.backends.base import DeviceLost, KernelError
from aliquot.kernels.executor import sandbox
from aliquot.kernels.executor.call_files import CallFiles, ObjectDamaged
from aliquot.kernels.executor.compiled_code import CACHES
from aliquot.kernels.executor.device import ExecutorDevice, LoadTime
from aliquot.kernels.executor.sandbox import GraphNotLoaded, KernelSandbox
from aliquot.runtime import answers, frames
from aliquot.runtime.answers import OUT_OF_MEMORY, RunAnswer, developer_error
from aliquot.runtime.output import OutputPipes
from aliquot.runtime.progress import map_page

SEAT_DESCRIPTORS = 3
DEVICE_LOST = 70  # the exit code of a process whose device cannot be used any more
READY = b"r"  # tells the server that graphs may come

load = sandbox.load_trial  # a trial has a process of its own, which serves one graph


def serve(control: socket.socket, description: dict[str, Any]) -> NoReturn:
    """Serve the graphs that the server sends, until it closes the socket."""
    os.environ.update(CACHES)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # between runs; a run has the output of its graph
    os.dup2(null, 2)
    device = ExecutorDevice(bytes_per_s=description["device_bytes_per_s"])
    control.sendall(READY)
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(control, 1, SEAT_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, fds = b"", []
        if not data:
            os._exit(0)
        seat = ExecutorSeat(device, *fds, max_bytes=description["result_bytes"])
        Thread(target=seat.serve, daemon=True).start()


class ExecutorSeat:
    """One graph of an executor, with the socket on which its requests come."""

    def __init__(self, device: ExecutorDevice, sock: int, out: int, err: int, *, max_bytes: int) -> None:
        self._device = device
        self._sock = socket.socket(fileno=sock)
        self._pipes = (out, err)
        self._output = OutputPipes(self._pipes)
        self._max_bytes = max_bytes
        self._sandbox: KernelSandbox | None = None

    def serve(self) -> None:
        """Answer requests until the server closes the socket. Then free what the graph has on the device."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                (kind, _, first, second), fds = frames.receive_first(self._sock)
                try:
                    status, result, pickled, _ = self._answer(kind, json.loads(first), second, fds)
                except MemoryError:
                    status, result, pickled, _ = developer_error(OUT_OF_MEMORY)
                except GraphNotLoaded as error:
                    status, result, pickled, _ = developer_error(str(error))
                except Exception as error:  # noqa: BLE001 - a library of a device may raise anything
                    status, result, pickled, _ = developer_error(str(error) or type(error).__name__)
                frames.send(self._sock, status, result, pickled, printed=self._output.flush())
        if self._sandbox is not None:
            with self._device.loading, contextlib.suppress(Exception):
                self._sandbox.unload()
        self._output.close()
        for fd in self._pipes:
            os.close(fd)
        self._sock.close()  # only now, since the server waits for the memory

    def _answer(self, kind: int, first: dict[str, Any], second: bytes | memoryview, fds: list[int]) -> RunAnswer:
        if kind == frames.INIT:
            return self._init(first, fds)
        if self._sandbox is None:
            return developer_error("The graph is not loaded.")
        if kind == frames.UNLOAD:
            with self._device.loading:
                self._sandbox.unload()
            return RunAnswer(frames.SUCCESS, b"{}")
        if kind == frames.LOAD:
            with self._device.timed_load(self._sandbox.loaded):
                self._sandbox.reload()
            return RunAnswer(frames.SUCCESS, b"{}")
        with self._device.running, self._device.busy:
            os.dup2(self._pipes[0], 1)
            os.dup2(self._pipes[1], 2)
            form = self._sandbox.graph.form
            return self._run(self._sandbox, kind, CallFiles(first, fds, self._device.outputs, form), second)

    def _run(self, sandbox: KernelSandbox, kind: int, files: CallFiles, payload: bytes | memoryview) -> RunAnswer:
        try:
            if kind == frames.RUN_PICKLED:
                return RunAnswer(*sandbox.run_file(payload, files))
            return answers.from_result(sandbox(json.loads(bytes(payload)), files), self._max_bytes)
        except DeviceLost as error:
            os.write(self._pipes[1], f"{error}\n".encode())
            os._exit(DEVICE_LOST)  # the run is to blame, and other calls run again elsewhere
        except (KernelError, ObjectDamaged) as error:
            return RunAnswer(frames.APPLICATION_ERROR, answers.error_json(str(error)))
        finally:
            files.close()

    def _init(self, description: dict[str, Any], fds: list[int]) -> RunAnswer:
        if self._sandbox is not None:
            return developer_error("A graph cannot be loaded twice.")
        description["page"] = map_page(fds.pop(0))
        description["constants"] = {digest: fds.pop(0) for digest in description["constants"]}
        times: list[LoadTime] = []
        with self._device.timed_load(times.append):
            self._sandbox = sandbox.load(description, self._device)
        self._sandbox.loaded(times[0])
        return RunAnswer(frames.SUCCESS, b"{}")
