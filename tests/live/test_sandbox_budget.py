"""Real sandboxes within the descriptors of the server: a tenant's idle ones make way, and others keep their part."""

import os

from sandboxes import play, result

from aliquot.descriptors import SANDBOX_DESCRIPTORS, divide_descriptors
from aliquot.live.node.cells import MAX_READY_CELLS
from aliquot.testing.server import open_files
from aliquot.testing.waiting import wait_on_loop

SHARES = divide_descriptors(4096)._replace(sandboxes=8)  # two of them are for ready cells, so a tenant alone gets three
CODE = "import time\ndef main(args):\n    time.sleep(args.get('s', 0))\n    return {'answer': 42}\n"


def test_beyond_its_part_a_tenants_new_sandbox_replaces_an_idle_one(tmp_path):
    async def scene(rig):
        first = [await rig.started(CODE, tenant="greedy") for _ in range(3)]
        fourth = rig.launch(CODE, tenant="greedy")
        assert [(await rig.next())[:2] for _ in range(2)] == [("refused", first[0]), ("started", fourth)]
        neighbour = await rig.started(CODE, tenant="neighbour")
        assert result(await rig.run(neighbour)) == {"answer": 42}

    play(tmp_path, scene, descriptors=SHARES)


def test_a_tenant_whose_sandboxes_are_all_busy_gets_no_other_and_is_told_why(tmp_path):
    async def scene(rig):
        for sandbox in [await rig.started(CODE, tenant="greedy") for _ in range(3)]:
            rig.request(sandbox, {"s": 60})
        outcome = await rig.not_started(CODE, tenant="greedy")
        assert "sandboxes: the namespace holds 3 sandboxes and asks for 1 more" in result(outcome)["error"]
        neighbour = await rig.started(CODE, tenant="neighbour")
        assert result(await rig.run(neighbour)) == {"answer": 42}

    play(tmp_path, scene, descriptors=SHARES)


def test_a_sandbox_costs_the_server_no_more_descriptors_than_the_table_says(tmp_path):
    async def scene(rig):
        await rig.started(CODE)
        pid = os.getpid()
        await rig.run(rig.last)
        (zygote,) = rig.node._zygotes._zygotes.values()
        await wait_on_loop(
            lambda: [cell.is_ready for cell in zygote._ready_cells],
            lambda ready: ready == [True] * MAX_READY_CELLS,
            what="the ready cells, which also have descriptors",
        )
        before = open_files(pid)
        numbers = [await rig.started(CODE) for _ in range(4)]
        for number in numbers:
            await rig.run(number)
        await wait_on_loop(
            lambda: open_files(pid) - before,
            lambda more: more <= SANDBOX_DESCRIPTORS * len(numbers),
            what="the descriptors of four more sandboxes",
        )

    play(tmp_path, scene)
