"""Generated graphs: no two living buffers overlap in the plan, and it is no larger than placing them side by side."""

from hypothesis import given
from hypothesis import strategies as st
from kernel_graphs import graph_of

from aliquot.kernels.check import check_graph
from aliquot.kernels.digest import canonical, digest
from aliquot.kernels.plan import ALIGNMENT_BYTES, aligned, buffer_lifetimes, plan_memory
from aliquot.kernels.reading import read_graph

DIGESTS = [f"{number:064x}" for number in range(3)]


@st.composite
def documents(draw):
    kinds = draw(st.lists(st.sampled_from(["input", "const", "temporary", "output"]), min_size=1, max_size=12))
    buffers = {}
    for number, kind in enumerate(kinds):
        shape = [draw(st.integers(1, 700))]
        buffers[f"b{number}"] = {"kind": kind, "dtype": draw(st.sampled_from(["u1", "f4"])), "shape": shape}
        if kind == "const":  # equal digests have equal sizes
            buffers[f"b{number}"] |= {"sha256": (sha := draw(st.sampled_from(DIGESTS))), "dtype": "u1"}
            buffers[f"b{number}"]["shape"] = [int(sha, 16) + 1]
    writable = [name for name, buffer in buffers.items() if buffer["kind"] in ("temporary", "output")]
    kernels = [[{"out" if name in writable else "in": name}] for name in buffers]  # each buffer is used
    for _ in range(draw(st.integers(0, 12))):
        name = draw(st.sampled_from(list(buffers)))
        accesses = ["in", "out", "inout"] if name in writable else ["in"]
        draw(st.sampled_from(kernels)).append({draw(st.sampled_from(accesses)): name})
    kernels = draw(st.permutations(kernels))
    return {
        "form": "opencl",
        "programs": {"p": {"source": "…"}},
        "buffers": buffers,
        "kernels": [
            {"program": "p", "entry": "k", "grid": [1], "block": [1], "arguments": arguments} for arguments in kernels
        ],
        "iterations": draw(st.sampled_from([1, 1, 5])),
    }


@given(documents())
def test_living_buffers_never_overlap(document):
    graph = graph_of(document)
    assert check_graph(graph) == []
    plan, lifetimes = plan_memory(graph), buffer_lifetimes(graph)
    sizes = {name: graph.buffers[name].size_bytes for name in lifetimes}
    for name, offset in plan.offsets.items():
        assert offset % ALIGNMENT_BYTES == 0
        assert offset + sizes[name] <= plan.run_bytes
        for other, place in plan.offsets.items():
            if other != name and lifetimes[name].meets(lifetimes[other]):
                assert offset + sizes[name] <= place or place + sizes[other] <= offset
    assert plan.run_bytes <= sum(map(aligned, sizes.values()))
    living = [
        sum(aligned(sizes[name]) for name, life in lifetimes.items() if life.first <= number <= life.last)
        for number in range(len(graph.kernels))
    ]
    assert plan.run_bytes >= max(living, default=0)


@given(documents())
def test_every_use_of_a_buffer_is_within_its_lifetime(document):
    graph = graph_of(document)
    lifetimes = buffer_lifetimes(graph)
    for number, kernel in enumerate(graph.kernels):
        for argument in kernel.buffers:
            if argument.name in lifetimes:
                assert lifetimes[argument.name].first <= number <= lifetimes[argument.name].last


@given(documents())
def test_a_graph_survives_its_canonical_form(document):
    graph = graph_of(document)
    again = read_graph(canonical(graph))
    assert again == graph
    assert digest(again) == digest(graph)
