"""The expression host: a process that has imported what expressions need, and forks workers for the server.

It is started as `python -m aliquot.live.expressions.process FD`. The server sends it a socket for each worker. A worker
answers one request after the other. The kernel ends it when a request takes more processor time than it may, because a
regular expression does not return to Python before it has matched.
"""

import gc
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from aliquot.live.expressions.messages import (
    LENGTH,
    MAX_DATA_BYTES,
    MAX_REPLY_BYTES,
    READY,
    CheckedDefinition,
    DefinitionCheckRequest,
    Drawing,
    DrawRequest,
    EvaluateRequest,
    WorkerReply,
    WorkerRequest,
    frame,
    request_decoder,
)
from aliquot.workflow.drawing import draw_svg
from aliquot.workflow.errors import DATA_LIMIT
from aliquot.workflow.graph import graph_of
from aliquot.workflow.interpreter import Evaluated, evaluate
from aliquot.workflow.language import Complaint, Machine, checked_machine, read_definition
from aliquot.workflow.outline import outline_of
from aliquot.workflow.values import parse_json

WALL_FACTOR, MIN_WALL_S = 60, 5.0  # a limit of processor time ends a request by the clock as well, much later
NICENESS = 5


def serve_host(control: socket.socket) -> None:
    """Fork a worker for each socket that the server sends, until it closes the connection."""
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            control.close()
            if data == b"n":
                lower_priority()
            with socket.socket(fileno=fds[0]) as sock, suppress(ConnectionError):
                serve_worker(sock)
            os._exit(0)
        os.close(fds[0])


def lower_priority() -> None:
    """Give this process a quarter of a core beside another that wants it.

    Niceness counts only between processes of one session, if the kernel groups them by session. Then the session itself
    has a niceness. So the process begins a session.
    """
    os.setsid()
    os.nice(NICENESS)
    with suppress(OSError):  # a kernel that does not group them
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")


def serve_worker(sock: socket.socket) -> None:
    """Answer requests until the server closes the connection."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    machines: dict[str, Machine] = {}
    sock.sendall(READY)
    with sock.makefile("rb") as stream:
        while header := stream.read(LENGTH.size):
            request = request_decoder.decode(stream.read(*LENGTH.unpack(header)))
            _limit(request.limit_s)
            sent = frame(_answer(request, machines))
            _limit(0)
            sock.sendall(sent)


def _answer(request: WorkerRequest, machines: dict[str, Machine]) -> WorkerReply:
    if isinstance(request, EvaluateRequest):
        return _evaluated(request, machines)
    return _drawn(request) if isinstance(request, DrawRequest) else _checked(request)


def _drawn(request: DrawRequest) -> Drawing:
    graph = graph_of(checked_machine(parse_json(request.definition.decode())))
    svg = draw_svg(graph, request.marks, request.title).encode()
    return Drawing(svg if len(svg) <= MAX_REPLY_BYTES else b"")


def _limit(seconds: float) -> None:
    """End this process after so much processor time, or take the limit back."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, max(MIN_WALL_S, WALL_FACTOR * seconds) if seconds else 0)


def _evaluated(request: EvaluateRequest, machines: dict[str, Machine]) -> WorkerReply:
    if request.definition is not None:
        machines[request.digest] = checked_machine(parse_json(request.definition.decode()), whole=True)
    number = request.command.evaluation
    try:
        reply = evaluate(machines[request.digest], request.command)
        if len(frame(reply)) > MAX_REPLY_BYTES:
            reason = f"The state built values of more than {MAX_REPLY_BYTES} bytes"
            return Evaluated(number, error=DATA_LIMIT, cause=reason)
    except (MemoryError, UnicodeEncodeError) as error:
        return Evaluated(number, error=DATA_LIMIT, cause=f"The values of the state cannot be held: {error!r}")
    return reply


def _checked(request: DefinitionCheckRequest) -> WorkerReply:
    try:
        definition = parse_json(request.definition.decode())
        machine, complaints = read_definition(definition)
    except (ValueError, RecursionError, MemoryError) as error:
        return CheckedDefinition((Complaint("", "definition", f"it cannot be read as JSON: {error}"),))
    reply = CheckedDefinition(complaints)
    if machine is not None:
        reply = CheckedDefinition(complaints, graph_of(machine).resources(), outline_of(definition))
    if len(frame(reply)) <= MAX_REPLY_BYTES:
        return reply
    return CheckedDefinition((*complaints[:10], Complaint("", "definition", f"it has {len(complaints)} mistakes")))


if __name__ == "__main__":
    import jsonata  # noqa: F401 - before the first fork

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes the socket
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes ended workers
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve_host(channel)
