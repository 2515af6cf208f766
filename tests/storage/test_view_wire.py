"""The FUSE protocol with old and new kernels."""

import errno

import pytest

from aliquot.storage.view import wire


@pytest.mark.parametrize(
    ("release", "again"),
    [
        ("6.18.44-fc-v490", True),
        ("6.9.0", True),
        ("7.0", True),
        ("6.8.0-49-generic", False),
        ("5.15", False),
        ("", False),
    ],
)
def test_a_kernel_asks_again_from_6_9_on(release, again):
    assert wire.resends(release) is again


def test_an_old_kernel_is_told_of_nothing_that_it_does_not_offer():
    """The shorter INIT of an old kernel has no second word of flags."""
    agreed, said = wire.init(wire.INIT_IN.pack(7, 31, 2**17, wire.ASYNC_READ | wire.MAX_PAGES, 0xFFFFFFFF)[:16])
    assert agreed == wire.ASYNC_READ | wire.MAX_PAGES
    _, minor, _, flags, *_, more, depth, _ = wire.INIT_OUT.unpack(said)
    assert (minor, flags, more, depth) == (31, agreed, 0, 0)


def test_a_new_kernel_is_told_what_both_know():
    offered = wire.WANTED | 1 << 41
    agreed, said = wire.init(wire.INIT_IN.pack(7, 99, 2**17, offered & 0xFFFFFFFF, offered >> 32))
    assert agreed == wire.WANTED
    _, minor, *_, more, depth, _ = wire.INIT_OUT.unpack(said)
    assert (minor, more, depth) == (wire.MINOR, wire.WANTED >> 32, wire.STACK)


def test_another_protocol_is_refused():
    with pytest.raises(OSError, match="FUSE 8") as raised:
        wire.init(wire.INIT_IN.pack(8, 0, 0, 0, 0))
    assert raised.value.errno == errno.EPROTO


def test_a_time_before_1970_is_told_as_the_kernel_reads_it():
    told = wire.ATTR_OUT.pack(0, 0, 0, *wire.attributes(7, 5, -1.5, directory=False, block=4096))
    *_, seconds, _, _, part, _, _, _, _, _, _, _, _, _ = wire.ATTR_OUT.unpack(told)
    assert (seconds - (1 << 64), part) == (-2, 500_000_000)
