"""Parts of gateway processes: frames that are cut anywhere, and connections that are divided among processes."""

import asyncio
import random
import socket
from contextlib import closing

import pytest
from gateway_client import on_a_loop

from aliquot.live.gateway.processes.accepting import ENDED, Acceptor, ConnectionCounts
from aliquot.live.gateway.processes.frames import (
    CALL,
    MAX_FRAME_BYTES,
    PIECE,
    FrameConnection,
)
from aliquot.testing.waiting import wait_on_loop


class Written:
    """A transport that keeps what is written to it."""

    def __init__(self):
        self.data = b""
        self.aborted = False

    def is_closing(self):
        return self.aborted

    def write(self, data):
        self.data += data

    def abort(self):
        self.aborted = True


@on_a_loop
async def test_frames_arrive_whole_and_in_order_wherever_the_stream_is_cut():
    chance = random.Random(1)
    sent, received = [], []
    sender = FrameConnection({})
    sender.connection_made(Written())
    for number in range(200):
        kind, payload = chance.choice((CALL, PIECE)), chance.randbytes(chance.choice((0, 1, 30, 3000)))
        sender.send(kind, number, payload)
        sent.append((kind, number, payload))
    receiver = FrameConnection(
        {kind: lambda number, payload, kind=kind: received.append((kind, number, payload)) for kind in (CALL, PIECE)}
    )
    receiver.connection_made(Written())
    data = sender._transport.data
    while data:
        size = chance.choice((1, 5, 13, 500, 20_000))
        receiver.data_received(data[:size])
        data = data[size:]
    assert received == sent


@on_a_loop
async def test_a_frame_that_fails_is_skipped_and_one_without_end_closes_the_connection():
    received = []

    def handle(number, payload):
        received.append(number)
        if not payload:
            raise ValueError("a payload is missing")

    connection = FrameConnection({CALL: handle})
    connection.connection_made(transport := Written())
    connection.send(CALL, 1)
    connection.send(CALL, 2, b"x")
    connection.data_received(transport.data)
    assert received == [1, 2]
    transport.data = b""
    connection.send(CALL, 3, bytes(MAX_FRAME_BYTES + 100))
    connection.data_received(transport.data[:-1])
    assert transport.aborted


def test_a_process_with_fewer_connections_comes_first_and_one_that_has_ended_never():
    with closing(ConnectionCounts.create(3)) as counts:
        counts.set(0, 5)
        assert not counts.others_have_fewer(0)  # the others do not run
        counts.set(1, 5)
        assert not counts.others_have_fewer(0)
        counts.set(1, 4)
        assert counts.others_have_fewer(0)
        assert not counts.others_have_fewer(1)
        counts.set(1, ENDED)
        assert not counts.others_have_fewer(0)
        seen_elsewhere = ConnectionCounts(counts.fd, 3)
        counts.set(2, 1)
        assert seen_elsewhere.others_have_fewer(0)


@pytest.mark.parametrize("other_accepts", [True, False])
@on_a_loop
async def test_a_connection_is_left_to_another_process_and_taken_if_that_does_not(other_accepts):
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = Acceptor([listener.dup()], lambda: False, lambda connection: taken.append(("ours", connection)))
        others = []
        if other_accepts:
            accepts = Acceptor([listener.dup()], lambda: True, lambda connection: taken.append(("other", connection)))
            others.append(accepts)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        await wait_on_loop(lambda: taken, what="the connection to be accepted")
        assert [name for name, _ in taken] == ["other" if other_accepts else "ours"]
        for acceptor in (ours, *others):
            acceptor.close()
        for _, connection in taken:
            connection.close()
        writer.close()
