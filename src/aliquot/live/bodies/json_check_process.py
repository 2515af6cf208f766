"""The process of the JSON checker: it reads requests with a descriptor from a socket and sends results back.

It is started as `python -m aliquot.live.bodies.json_check_process FD`.
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
MAX_DATA_BYTES = 2**29  # limit of its own memory without the bodies: keys take many times their size in JSON


def serve(sock: socket.socket) -> None:
    """Answer requests until the server closes the socket."""
    read = msgspec.json.Decoder(CheckRequest)
    while True:
        data, fds, _, _ = socket.recv_fds(sock, MAX_MESSAGE_BYTES, 1)
        if not data:
            return
        request = read.decode(data)
        with mmap.mmap(fds[0], 0, prot=mmap.PROT_READ) as mapping:
            os.close(fds[0])
            with memoryview(mapping) as whole, whole[request.begin : request.end] as body:
                result = check_json(body, request)
        sock.send(msgspec.json.encode(result))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes the socket
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
