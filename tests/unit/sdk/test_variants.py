"""Versions of a function for processors: what the decorator declares, and what it refuses."""

import pytest

import aliquot
from aliquot.sdk.errors import UsageError


def on_gpu(x, *, y=1):
    return x + y


def on_cpu(x, *, y=1):
    return x + y + 100


def with_another_parameter(x, z):
    return x + z


def make(**needs):
    return aliquot.App("variants").function(**needs)(on_gpu)


def test_a_version_for_processors_is_deployed_with_its_function():
    function = make(gpu=0.5)
    assert "cpu" not in function.needs.annotations()
    assert function.variant("cpu")(on_cpu) is on_cpu
    assert function.needs.annotations()["cpu"] == "on_cpu"
    assert function(1) == 2


def test_one_code_may_serve_both():
    assert make(gpu=0.5, cpu=True).needs.annotations()["cpu"] is True
    assert "cpu" not in make(gpu=0.5, cpu=False).needs.annotations()


@pytest.mark.parametrize(
    ("needs", "kind", "raw", "complaint"),
    [
        ({"gpu": 0.5}, "tpu", on_cpu, "'tpu' does not fit; it takes 'cpu'"),
        ({"gpu": 0.5}, "cpu", lambda x: x, "it takes a def at the top of the file"),
        ({"gpu": 0.5}, "cpu", on_gpu, "it has the same name; give it another one, such as on_gpu_on_cpu"),
        ({"gpu": 0.5, "cpu": True}, "cpu", on_cpu, "there is one already, True; leave out cpu=True"),
        ({"gpu": 0.5}, "cpu", with_another_parameter, "has other parameters; it takes those of on_gpu"),
        ({}, "cpu", on_cpu, "it needs a share of one GPU beside it, such as gpu=0.5, not gpu=None"),
        ({"gpu": 2}, "cpu", on_cpu, "it needs a share of one GPU beside it, such as gpu=0.5, not gpu=2"),
        ({"gpu": 0.5, "group": "g"}, "cpu", on_cpu, "a function of a group has one version; leave out group='g'"),
    ],
)
def test_a_version_that_does_not_fit_is_refused_with_the_reason(needs, kind, raw, complaint):
    with pytest.raises(UsageError) as refused:
        make(**needs).variant(kind)(raw)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("needs", "complaint"),
    [
        ({"cpu": True}, "cpu: it needs a share of one GPU beside it, such as gpu=0.5, not gpu=None"),
        ({"cpu": "yes", "gpu": 0.5}, "cpu: 'yes' does not fit; it takes True or False"),
        ({"cpu": True, "gpu": 0.5, "group": "g"}, "cpu: a function of a group has one version"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_with_the_reason(needs, complaint):
    with pytest.raises(UsageError) as refused:
        make(**needs)
    assert complaint in str(refused.value)
