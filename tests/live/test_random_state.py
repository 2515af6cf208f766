"""Sandboxes that are forked from one zygote draw different random numbers."""

import importlib.util
import sys
from pathlib import Path

import pytest
from sandboxes import play, result

DRAW = {
    "random": "import random\ndef main(args):\n    return {'drawn': random.getrandbits(48)}",
    "numpy.random": "import numpy\ndef main(args):\n    return {'drawn': int(numpy.random.randint(2**48))}",
    "torch": "import torch\ndef main(args):\n    return {'drawn': int(torch.randint(2**48, (1,)))}",
}


@pytest.mark.parametrize("module", DRAW)
def test_sandboxes_of_one_zygote_draw_different_numbers(tmp_path, module):
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed")

    async def scene(rig):
        sandboxes = [await rig.started(DRAW[module], imports=(module,), memory_bytes=2**30) for _ in range(2)]
        drawn = [result(await rig.run(sandbox))["drawn"] for sandbox in sandboxes]
        assert drawn[0] != drawn[1]

    play(tmp_path, scene, python=Path(sys.executable))
