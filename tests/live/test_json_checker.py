"""The process that checks large bodies has limits: a flood of keys harms only its sender."""

import asyncio
import resource
import signal
import subprocess
import sys

from aliquot.live.bodies.json_check import TOO_MANY
from aliquot.live.bodies.json_check_process import MAX_DATA_BYTES
from aliquot.live.bodies.json_checker import NOT_CHECKED, TOO_MANY_NAMES, JsonChecker
from aliquot.live.bodies.large import allocate
from aliquot.testing.waiting import wait_on_loop


def large(data):
    body = allocate(len(data))
    body[:] = data
    return body


def test_so_many_keys_that_there_is_no_room_for_them_are_refused():
    code = """
import resource
from aliquot.live.bodies.json_check import CheckRequest, check_json
flood = memoryview(b'{' + b','.join(b'"%x":0' % n for n in range(600_000)) + b'}')
plain = memoryview(b'{"a":[' + b'0,' * 2_000_000 + b'1]}')
resource.setrlimit(resource.RLIMIT_DATA, (2**26, 2**26))
for body in (flood, plain):
    print(check_json(body, CheckRequest(0, len(body), True, ('a',))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert TOO_MANY in first
    assert second.startswith("CheckResult(why=None, names=('a',)")


def test_its_process_has_a_bound_on_its_memory():
    async def scene():
        checker = JsonChecker()
        try:
            result = await checker.check(large(b'{"a":1}'), "a", is_object=True, names=("a", "b"))
            assert (result.why, result.names) == (None, ("a",))
            assert resource.prlimit(checker._process.pid, resource.RLIMIT_DATA) == (MAX_DATA_BYTES, MAX_DATA_BYTES)
        finally:
            checker.close()

    asyncio.run(scene())


def test_more_names_than_it_can_be_asked_for_are_refused():
    async def scene():
        checker = JsonChecker()
        result = await checker.check(large(b"{}"), "a", is_object=True, names=tuple(f"{n:0100}" for n in range(5000)))
        assert result.why == TOO_MANY_NAMES
        checker.close()

    asyncio.run(scene())


def test_tenants_take_turns():
    async def scene():
        checker, order = JsonChecker(), []
        flood = [large(b'"%d"' % number) for number in range(20)]
        for body in flood:
            checker.submit(body, "greedy", lambda _: order.append("greedy"))
        checker.submit(large(b'"x"'), "neighbour", lambda _: order.append("neighbour"))
        await wait_on_loop(lambda: len(order) == len(flood) + 1, what="all checks")
        assert order.index("neighbour") <= 1, order
        checker.close()

    asyncio.run(scene())


def test_a_body_that_ends_the_process_twice_is_refused_and_others_are_checked():
    """Nothing is checked in the server, which would stand still meanwhile."""

    async def scene():
        checker, found = JsonChecker(), {}
        blocked = large(b"[" + b"0," * 40_000_000 + b"1]")
        checker.submit(blocked, "greedy", lambda result: found.update(greedy=result.why))
        checker.submit(large(b"[]"), "neighbour", lambda result: found.update(neighbour=result.why))
        for _ in range(2):
            ended = checker._process
            ended.send_signal(signal.SIGKILL)
            await wait_on_loop(lambda ended=ended: checker._process is not ended, what="another process")
        await wait_on_loop(lambda: len(found) == 2, what="both results")
        assert found == {"greedy": NOT_CHECKED, "neighbour": None}
        checker.close()

    asyncio.run(scene())
