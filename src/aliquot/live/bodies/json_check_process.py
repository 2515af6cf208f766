"""The judge's own process: questions with a descriptor come in on a socket, verdicts go out. Nothing is kept.

Started as `python -m aliquot.live.bodies.json_check_process FD`.
"""

import mmap
import os
import resource
import signal
import socket
import sys

import msgspec

from aliquot.live.bodies.json_check import CheckRequest, check_json

MAX_MESSAGE_BYTES = 2**17
MAX_DATA_BYTES = 2**29  # its own memory, the bodies aside: keys take many times the room that they take in JSON


def serve(sock: socket.socket) -> None:
    """Until the server hangs up."""
    read = msgspec.json.Decoder(CheckRequest)
    while True:
        data, fds, _, _ = socket.recv_fds(sock, MAX_MESSAGE_BYTES, 1)
        if not data:
            return
        question = read.decode(data)
        with mmap.mmap(fds[0], 0, prot=mmap.PROT_READ) as mapping:
            os.close(fds[0])
            with memoryview(mapping) as whole, whole[question.begin : question.end] as body:
                result = check_json(body, question)
        sock.send(msgspec.json.encode(result))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then hangs up
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
