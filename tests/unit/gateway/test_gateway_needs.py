"""Annotations for resources: accepted values, and refusals with their texts."""

import pytest

from aliquot.core.errors import InputError
from aliquot.live.catalogue.needs import ActionNeeds, parse_needs
from aliquot.live.catalogue.variables import VARIABLE_NAMES
from aliquot.live.store.records import Action, Exec, Pair


def read(**annotations):
    pairs = tuple(Pair(key.replace("_", "-"), value) for key, value in annotations.items())
    return parse_needs(Action("guest", "f", "0.0.1", Exec("python:3.11"), annotations=pairs))


def test_a_function_without_annotations_runs_on_the_cpu():
    assert read() == ActionNeeds()
    function = read().function("f", host_bytes=7)
    assert (function.name, function.share, function.memory_bytes, function.host_bytes) == ("f", 0, 0, 7)


def test_every_annotation_becomes_a_need():
    needs = read(
        gpu_share=0.25,
        gpu_memory="4GiB",
        gpu_share_limit="0.5",
        gpu_memory_limit=8192,
        latency_slo_ms=200,
        cost_slo=1.5,
        weight=2,
        batch=8,
        datasets=["faces"],
        imports=["numpy", "torch.nn"],
        requirements=["pillow>=10"],
        rerun=True,
        sdk="true",
        volumes=["models"],
        description="the owner's own",
    )
    assert needs == ActionNeeds(
        *(0.25, 4 << 30, 0.5, 8192 << 20, 0.2, 1.5, 2, 8),
        datasets=("faces",),
        imports=("numpy", "torch.nn"),
        requirements=("pillow>=10",),
        rerun=2,
        sdk=True,
        volumes=("models",),
    )
    function = needs.function("f")
    assert (function.share, function.memory_bytes, function.weight) == (0.25, 4 << 30, 2)


def test_memory_without_a_unit_is_in_mebibytes():
    assert read(gpu_share=1, gpu_memory=512).gpu_memory_bytes == 512 << 20
    assert read(gpu_share=1, gpu_memory=0.5).gpu_memory_bytes == 512 << 10


PART = "0.01 to 1 of a GPU in steps of 0.005, such as 0.25, or a whole number of GPUs, such as 2"
SHARE = f"0, or {PART}"


@pytest.mark.parametrize("share", [0, 0.01, 0.07, 0.125, 0.29, 0.57, 0.995, 1, 2, 8, "0.25", "2"])
def test_every_step_of_a_share_is_kept_as_it_is(share):
    assert read(gpu_share=share).function("f").share == float(share)


ENV = f'an object of texts by their names, such as {{"MODE": "fast"}}; a name has {VARIABLE_NAMES}'
SIZE = 'a size such as "4GiB", or a number of MiB'


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"gpu_share": 1.5}, f"annotation gpu-share: it takes {SHARE}, not 1.5"),
        ({"gpu_share": 2.25}, f"annotation gpu-share: it takes {SHARE}, not 2.25"),
        ({"gpu_share": 0.009}, f"annotation gpu-share: it takes {SHARE}, not 0.009"),
        ({"gpu_share": 0.333}, f"annotation gpu-share: it takes {SHARE}, not 0.333"),
        ({"gpu_share": -0.5}, f"annotation gpu-share: it takes {SHARE}, not -0.5"),
        ({"gpu_share": 0.5, "gpu_share_limit": 0}, f"annotation gpu-share-limit: it takes {PART}, not 0"),
        ({"gpu_share": 0.5, "gpu_share_limit": 0.501}, f"annotation gpu-share-limit: it takes {PART}, not 0.501"),
        (
            {"gpu_share": 0.5, "gpu_share_limit": 0.4},
            "annotation gpu-share-limit: it takes at least gpu-share, which is 0.5",
        ),
        (
            {"gpu_share": 0.5, "gpu_share_limit": 2},
            "annotation gpu-share-limit: it takes at most 1, because no function borrows a second GPU",
        ),
        (
            {"gpu_share": 2, "gpu_share_limit": 3},
            "annotation gpu-share-limit: it takes at most 2, because no function borrows a second GPU",
        ),
        (
            {"gpu_share": 0.5, "gpu_memory": "2GiB", "gpu_memory_limit": "1GiB"},
            f"annotation gpu-memory-limit: it takes at least gpu-memory, which is {2 << 30} bytes",
        ),
        ({"gpu_memory": "1GiB"}, "annotation gpu-memory: it needs gpu-share beside it, such as 0.25"),
        ({"gpu_memory_limit": 1}, "annotation gpu-memory-limit: it needs gpu-share beside it, such as 0.25"),
        ({"gpu_share": "much"}, f"annotation gpu-share: it takes {SHARE}, not 'much'"),
        ({"gpu_share": True}, f"annotation gpu-share: it takes {SHARE}, not True"),
        ({"gpu_share": "nan"}, f"annotation gpu-share: it takes {SHARE}, not 'nan'"),
        ({"gpu_share": 10**400}, f"annotation gpu-share: it takes {SHARE}, not 1{'0' * 79}…"),
        ({"gpu_share": 0.5, "gpu_memory": "4 GX"}, f"annotation gpu-memory: it takes {SIZE}, not '4 GX'"),
        ({"gpu_share": 0.5, "gpu_memory": -1}, f"annotation gpu-memory: it takes {SIZE}, not -1"),
        ({"gpu_memory": "4GiB"}, "annotation gpu-memory: it needs gpu-share beside it, such as 0.25"),
        ({"gpu_share_limit": 1}, "annotation gpu-share-limit: it needs gpu-share beside it, such as 0.25"),
        (
            {"gpu_share": 0.5, "gpu_share_limit": 0.25},
            "annotation gpu-share-limit: it takes at least gpu-share, which is 0.5",
        ),
        (
            {"gpu_share": 1, "gpu_memory": 2, "gpu_memory_limit": 1},
            "annotation gpu-memory-limit: it takes at least gpu-memory, which is 2097152 bytes",
        ),
        ({"latency_slo_ms": 0}, "annotation latency-slo-ms: it takes a number of milliseconds above 0, not 0"),
        ({"cost_slo": -1}, "annotation cost-slo: it takes a number above 0, not -1"),
        ({"weight": 0}, "annotation weight: it takes a number from 1e-06 to 1e+06, not 0"),
        ({"batch": 1.5}, "annotation batch: it takes a whole number from 1 to 65536, not 1.5"),
        ({"secrets": "a"}, """annotation secrets: it takes a list of names of secrets, such as ["hf"], not 'a'"""),
        ({"env": {"TMPDIR": "/"}}, f"annotation env: it takes {ENV}, not {{'TMPDIR': '/'}}"),
        ({"env": {"__OW_API_KEY": "k"}}, f"annotation env: it takes {ENV}, not {{'__OW_API_KEY': 'k'}}"),
        ({"env": {"A": 1}}, f"annotation env: it takes {ENV}, not {{'A': 1}}"),
        ({"datasets": "faces"}, "annotation datasets: it takes a list of names, not 'faces'"),
        (
            {"imports": ["os; rm"]},
            """annotation imports: it takes a list of module names, such as ["numpy"], not ['os; rm']""",
        ),
        (
            {"requirements": ["-r /etc/passwd"]},
            ('annotation requirements: it takes a list of requirements as pip takes them, such as ["pillow>=10"], '
            "not ['-r /etc/passwd']"),
        ),
        (
            {"requirements": [" -r x"]},
            ('annotation requirements: it takes a list of requirements as pip takes them, such as ["pillow>=10"], '
            "not [' -r x']"),
        ),
        (
            {"requirements": [" "]},
            ('annotation requirements: it takes a list of requirements as pip takes them, such as ["pillow>=10"], '
            "not [' ']"),
        ),
        ({"rerun": 11}, "annotation rerun: it takes true (which is 2), false, or how often, at most 10, not 11"),
        ({"rerun": -1}, "annotation rerun: it takes true (which is 2), false, or how often, at most 10, not -1"),
        ({"sdk": "yes"}, "annotation sdk: it takes true or false, not 'yes'"),
    ],
)  # fmt: skip
def test_the_refusal_of_a_wrong_value_names_the_annotation_and_the_accepted_values(annotations, text):
    with pytest.raises(InputError) as error:
        read(**annotations)
    assert str(error.value) == text
