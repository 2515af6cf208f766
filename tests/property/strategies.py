"""Random but sensible scenarios, with small numbers so that coincidences happen."""

from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.core.fit import misfit
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario


def examples_divided_by(number):
    """Limit a costly test to a part of the examples that the profile asks for."""
    return settings(max_examples=settings().max_examples // number)


times = st.sampled_from([0, 1, 2, 3, 5, 0.1, 0.2, 0.3, 2.5])


@st.composite
def devices(draw):
    kinds = draw(st.lists(st.sampled_from(["gpu", "gpu", "rtx4090"]), min_size=1, max_size=3))
    unbounded = draw(st.booleans())
    concurrency = draw(st.integers(1, 3))
    listed = [
        DeviceSpec(
            f"{kind}-{number}",
            kind,
            None if unbounded else draw(st.integers(4, 9)),
            concurrency,
            speed=2 if kind == "rtx4090" else 1,
        )
        for number, kind in enumerate(kinds)
    ]
    return [*listed, DeviceSpec("cpu-1", CPU, None, concurrency)]


@st.composite
def functions(draw, *, simple=False):
    made = {}
    for number in range(draw(st.integers(1, 5))):
        name = f"f{number}"
        made[name] = FunctionSpec(
            name,
            draw(st.integers(0, 4)),
            None if simple else draw(st.sampled_from([None, None, 0, 0.3, 0.5, 0.7, 1, 2])),
            Times(draw(times), draw(times), draw(times)),
            {} if simple else draw(st.sampled_from([{}, {}, {"rtx4090": Times(1, 1, 0)}, {CPU: Times(4, 1, 0)}])),
            draw(st.sampled_from([1, 1, 0.5, 3])),
            instances=None if simple else draw(st.sampled_from([None, None, 1, 2])),
            batch=1 if simple else draw(st.sampled_from([1, 1, 2, 4])),
            run_bytes=0 if simple else draw(st.sampled_from([0, 0, 1, 3])),
            one_per_device=not simple and draw(st.sampled_from([False, False, True])),
        )
    return made


def _that_fits(function, present):
    """Reduce functions that take two devices to one if there are no two devices of a kind."""
    return function if misfit(function, present) is None else replace(function, share=1, run_bytes=0)


@st.composite
def scenarios(draw):
    present = draw(devices())
    called = {name: _that_fits(function, present) for name, function in draw(functions()).items()}
    arrivals = draw(
        st.lists(
            st.builds(
                Arrival,
                st.sampled_from([0, 0, 0.1, 0.3, 1, 2, 3, 4, 5, 8, 13, 20]),
                st.sampled_from(sorted(called)),
                st.sampled_from(["default", "ann", "bob"]),
                st.one_of(st.none(), times),
                st.one_of(st.none(), st.sampled_from([0.5, 5])),
                st.none(),
                st.sampled_from([None, None, "s1", "s2"]),
                st.just(()),  # it reads no files
            ),
            max_size=40,
        )
    )
    return Scenario(
        present,
        called,
        ListedWorkload(arrivals),
        draw(st.sampled_from([{}, {"ann": 2}])),
        draw(st.sampled_from([None, InterferenceCurve(V100_STRETCH)])),
        draw(st.booleans()),
        check=True,
    )
