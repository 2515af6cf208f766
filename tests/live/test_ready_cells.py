"""Cells that are kept ready for the next starts."""

from sandboxes import play, strongest

from aliquot.live.node.cells import MAX_READY_CELLS
from aliquot.testing.waiting import wait_on_loop

CODE = "def main(args):\n    return {}\n"


def test_cells_are_made_one_after_the_other_until_there_are_enough(tmp_path):
    made_at_once = set()

    async def scene(rig):
        zygotes = await wait_on_loop(lambda: list(rig.node._zygotes._zygotes.values()), what="the first zygote")
        zygote = zygotes[0]

        def ready():
            made_at_once.add(sum(not cell.is_ready for cell in zygote._ready_cells))
            return sum(cell.is_ready for cell in zygote._ready_cells)

        for _ in range(2):
            await wait_on_loop(ready, lambda count: count == MAX_READY_CELLS, what="all cells to be ready")
            before = set(zygote._ready_cells)
            await rig.started(CODE)
            assert before - set(zygote._ready_cells), "the start has taken one"

    play(tmp_path / "data", scene, isolation=strongest())
    assert max(made_at_once) == 1
