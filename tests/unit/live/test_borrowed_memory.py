"""Children that use their parent's memory, and ordinary ones, as intermediate processes of zygotes."""

import os
import socket
from pathlib import Path

import pytest

from aliquot.runtime import borrowed_memory
from aliquot.runtime.borrowed_memory import BorrowedMemory, NamespaceHolder, run_forked_child

needs_borrowing = pytest.mark.skipif(not borrowed_memory.IS_POSSIBLE, reason="this Python checks its stack")


@pytest.fixture(params=[pytest.param("borrowed", marks=needs_borrowing), "forked"])
def run_child(request):
    return BorrowedMemory().run_child if request.param == "borrowed" else run_forked_child


@needs_borrowing
def test_a_child_copies_no_memory():
    seen = []
    BorrowedMemory().run_child(lambda: seen.append(os.getpid()))
    assert len(seen) == 1
    assert seen[0] != os.getpid()


def test_a_child_has_descriptors_of_its_own(run_child):
    reader, writer = os.pipe()
    run_child(lambda: os.close(reader))
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    for fd in (reader, writer):
        os.close(fd)


def test_a_process_that_the_child_forks_goes_on_with_memory_of_its_own(run_child):
    ours, theirs = socket.socketpair()
    values = ["parent's"]

    def depth(levels: int) -> int:
        return 0 if not levels else 1 + max([depth(levels - 1)])

    def grandchild() -> None:
        try:
            theirs.recv(1)  # until the child has ended
            values.append("grandchild's")
            theirs.send(f"{values} {depth(200)}".encode())
        finally:
            os._exit(0)

    def child() -> None:
        if os.fork() == 0:
            grandchild()

    with ours, theirs:
        run_child(child)
        ours.send(b"x")
        assert ours.recv(100) == b'["parent\'s", "grandchild\'s"] 200'
    assert values == ["parent's"]


def test_children_follow_one_another(run_child):
    reader, writer = os.pipe()
    for number in range(20):
        run_child(lambda number=number: os.write(writer, bytes([number])) and None)
    assert os.read(reader, 100) == bytes(range(20))
    for fd in (reader, writer):
        os.close(fd)


def test_a_holder_lives_as_long_as_it_is_needed():
    holder = NamespaceHolder()
    for _ in range(3):
        with holder.started(0) as child:
            assert Path(f"/proc/{child}/exe").samefile("/proc/self/exe")
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
