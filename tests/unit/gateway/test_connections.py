"""Connections by namespace: unknown ones make way, and a namespace cannot have those of others."""

import pytest

from aliquot.live.gateway.http.connections import Connections
from aliquot.live.gateway.http.refusal import Refusal


class Wire:
    def __init__(self, connections):
        self.payer = ""
        self.evicted = False
        connections.opened(self)

    def evict(self):
        self.evicted = True


def test_the_oldest_connection_without_a_key_makes_way_for_a_new_one():
    connections = Connections(96)  # 16 may be unknown
    wires = [Wire(connections) for _ in range(17)]
    assert [wire.evicted for wire in wires] == [True] + 16 * [False]
    connections.assign(wires[1], "guest")
    connections.closed(wires[2])
    newer = [Wire(connections) for _ in range(3)]
    assert [wire.evicted for wire in (*wires[1:5], *newer)] == [False, False, True, False, False, False, False]


def test_a_namespace_has_half_of_the_connections_that_others_leave():
    connections = Connections(96)  # 96 - 24 - 16 may be known
    greedy = [Wire(connections) for _ in range(28)]
    for wire in greedy:
        connections.assign(wire, "greedy")
        connections.assign(wire, "greedy")  # its next request
    more, neighbour = Wire(connections), Wire(connections)
    with pytest.raises(Refusal, match="holds 28 connections and asks for 1 more; it may hold 28") as refused:
        connections.assign(more, "greedy")
    assert (refused.value.status, refused.value.headers) == (429, ((b"connection", b"close"),))
    connections.assign(neighbour, "neighbour")
    connections.closed(more)
    connections.closed(greedy[0])
    connections.assign(greedy[1], "neighbour")  # a proxy uses one connection for both
    connections.assign(Wire(connections), "greedy")


def test_a_connection_that_is_closed_twice_counts_once():
    connections = Connections(96)
    wire = Wire(connections)
    connections.assign(wire, "guest")
    connections.closed(wire)
    connections.closed(wire)
    connections.assign(None, "guest")  # a request of a test, without a connection
