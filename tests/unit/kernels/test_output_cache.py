"""Outputs that stay on a device: which are kept, and how they are written behind."""

import fcntl
import os

import pytest

from aliquot.kernels.backends.base import Region
from aliquot.kernels.executor.call_files import CallFiles, ExecutorOutputs, ObjectDamaged
from aliquot.kernels.executor.output_cache import KeptOutput, OutputCache
from aliquot.kernels.graph import GraphBuffer
from aliquot.live.node.output_memory import OutputMemory
from aliquot.testing.waiting import wait_until

BUFFER = GraphBuffer("input", "u1", (4,))


class HostMemory(bytearray):
    """Memory of a device that is the host."""


class HostBackend:
    """A device whose memory is the host's, with what the cache needs of it."""

    def __init__(self):
        self.freed = []

    def with_own_queue(self):
        return self

    def read(self, region):
        return bytes(region.memory[region.offset : region.offset + region.size_bytes])

    def free(self, memory):
        self.freed.append(bytes(memory))


def kept(backend, content):
    return KeptOutput("opencl", backend, HostMemory(content), len(content))


def test_the_least_recently_used_goes_and_one_that_is_not_written_stays():
    backend, cache = HostBackend(), OutputCache(max_bytes=8)
    for token in "abc":
        cache.add(token, kept(backend, token.encode() * 4))
    assert backend.freed == [], "none is written yet"
    cache.find("a", "opencl")
    for token in "ab":
        cache.written(token)
    assert backend.freed == [b"aaaa"], "the first that was written"
    cache.written("c")
    cache.add("d", kept(backend, b"dddd"))
    assert backend.freed == [b"aaaa", b"bbbb"]
    assert cache.find("b", "opencl") is None
    assert cache.find("c", "cuda") is None, "memory of another driver"
    assert cache.find("c", "opencl") == Region(HostMemory(b"cccc"), 0, 4)


def test_an_output_is_written_behind_and_another_executor_waits_for_it():
    memory, outputs = OutputMemory(4, "7"), ExecutorOutputs()
    waiting = CallFiles({"inputs": [["k", "", "7"]], "outputs": []}, memory.share(), ExecutorOutputs(), "opencl")
    files = CallFiles({"inputs": [], "outputs": [["y", "k", "7"]]}, memory.give(), outputs, "opencl")
    assert files.staying == ["y"]
    assert not memory.is_settled
    files.keep("y", HostBackend(), HostMemory(b"abcd"), 4)
    files.close()
    assert waiting.read("x", "k", BUFFER) == b"abcd"
    wait_until(lambda: memory.is_settled, what="the memory is written")
    assert memory.is_written
    assert b"".join(memory.pieces()) == b"abcd"
    with pytest.raises(PermissionError):
        os.pwrite(memory.fd, b"x", 0)
    waiting.close()


def test_an_output_whose_executor_ends_before_it_is_written_is_lost():
    memory = OutputMemory(4, "7")
    waiting = CallFiles({"inputs": [["k", "", "7"]], "outputs": []}, memory.share(), ExecutorOutputs(), "opencl")
    for fd in memory.give():
        os.close(fd)  # as the end of a process does
    assert memory.is_settled
    assert not memory.is_written
    with pytest.raises(ObjectDamaged, match="its executor ended before it was written"):
        waiting.read("x", "k", BUFFER)
    waiting.close()


def test_a_sandbox_cannot_change_the_size_of_an_output():
    memory = OutputMemory(4)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, 8)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
