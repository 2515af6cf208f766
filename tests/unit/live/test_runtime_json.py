"""The JSON of results and arguments in a sandbox: as the standard library writes and reads it, with one encoder."""

import enum
import json
import math
from collections import OrderedDict

import pytest

from aliquot.runtime import answers

CYCLE: list[object] = []
CYCLE.append(CYCLE)


class Number(enum.IntEnum):
    ONE = 1


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - the errors are compared
        return type(error), str(error)


@pytest.mark.parametrize(
    "value",
    [
        {}, [], (), "ü\ud800", 1.5, None, True, 10**400, Number.ONE, {Number.ONE: [Number.ONE]}, OrderedDict(a=1),
        {1: 2, None: 3, False: 4, 1.5: 6}, {"a": [1, {"b": (1, 2)}]}, math.nan, [math.inf], {(1,): 2}, {"a": object},
        CYCLE,
    ],
)  # fmt: skip
def test_results_are_written_as_the_standard_library_writes_them(value):
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    assert outcome(answers._encode, value) == outcome(plain, value)


def test_a_result_that_cannot_be_written_leaves_nothing_behind():
    inner = {"a": 1}
    for wrong in ([inner, object()], {"b": inner, "c": math.nan}):
        with pytest.raises((TypeError, ValueError)):
            answers.to_json([wrong])
        assert answers.to_json([inner, wrong[0] if isinstance(wrong, list) else wrong["b"]]) == b'[{"a":1},{"a":1}]'
        assert b"Circular" not in answers.from_result({"x": wrong}, 1000).result


@pytest.mark.parametrize("text", ["{}", " {}", '{"a":1}\n', "{} x", "", "nul", "[1", '{"a":"\\ud800"}', "1 2"])
def test_texts_are_read_as_the_standard_library_reads_them(text):
    assert outcome(answers.decode, text) == outcome(json.JSONDecoder().decode, text)
