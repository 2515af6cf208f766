"""Intrinsic functions, with the results that AWS documents."""

import pytest
from workflow_scopes import scope

from aliquot.workflow.errors import QueryRefusedError, StateError
from aliquot.workflow.query.intrinsic_functions import INTRINSICS
from aliquot.workflow.query.intrinsics import compile_intrinsic

VALUE = {
    "name": "Arnav",
    "array": [1, 2, 3, 3, 2],
    "text": '{"a": [1, null]}',
    "one": {"a": 1, "b": {"x": 1}},
    "two": {"b": {"y": 2}},
    "long": "x" * 20_000,
}


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("States.Format('Hello, my name is {}.', $.name)", "Hello, my name is Arnav."),
        ("States.Format('{} {} {} {}', 1, 1.0, null, true)", "1 1.0 null true"),
        (r"States.Format('\{\} it\'s \\{}', 'x')", "{} it's \\x"),
        ("States.Format($v, 1)", "<1>"),
        ("States.Format('no places')", "no places"),
        ("States.Array('a', 1, $.name, States.Array())", ["a", 1, "Arnav", []]),
        ("States.ArrayPartition($.array, 2)", [[1, 2], [3, 3], [2]]),
        ("States.ArrayContains($.array, 3)", True),
        ("States.ArrayContains($.array, true)", False),
        ("States.ArrayContains($.array, 1.0)", True),
        ("States.ArrayRange(1, 9, 2)", [1, 3, 5, 7, 9]),
        ("States.ArrayRange(3, 1, -1)", [3, 2, 1]),
        ("States.ArrayGetItem($.array, 1)", 2),
        ("States.ArrayLength($.array)", 5),
        ("States.ArrayUnique($.array)", [1, 2, 3]),
        ("States.ArrayUnique(States.Array(1, 1.0, true, '1', null, null))", [1, True, "1", None]),
        ("States.Base64Encode('Data to encode')", "RGF0YSB0byBlbmNvZGU="),
        ("States.Base64Decode('RGF0YSB0byBlbmNvZGU=')", "Data to encode"),
        ("States.Hash('input data', 'SHA-1')", "aaff4a450a104cd177d28d18d74485e8cae074b7"),
        ("States.JsonMerge($.one, $.two, false)", {"a": 1, "b": {"y": 2}}),
        ("States.StringToJson($.text)", {"a": [1, None]}),
        ("States.StringToJson('')", None),
        ("States.StringToJson('[123456789012345678901234567890]')", [1.2345678901234568e29]),
        ("States.JsonToString($.two)", '{"b":{"y":2}}'),
        ("States.MathAdd(111, -1)", 110),
        ("States.MathAdd(1.49, 1.5)", 3),
        ("States.MathAdd(-1.5, 0)", -1),
        ("States.StringSplit('This.is+a,test=string', '.+,=')", ["This", "is", "a", "test", "string"]),
        ("States.StringSplit('1,,2', ',')", ["1", "2"]),
        (" States.ArrayLength( States.Array( 1 , 2 ) ) ", 2),
        ("States.Array($.one['a'], $['name'], $.array[?(@ in [1])])", [1, "Arnav", [1]]),
        ("States.Array($$.Execution.Id)", ["run-1"]),
    ],
)
def test_an_intrinsic_function_returns(call, result):
    assert compile_intrinsic(call).run(scope(VALUE, {"v": "<{}>"})) == result


def test_chance_is_a_hash_of_the_step():
    def drawn(call):
        return compile_intrinsic(call).run(scope(VALUE))

    assert drawn("States.MathRandom(1, 1000)") == drawn("States.MathRandom(1, 1000)")
    assert drawn("States.MathRandom(1, 1000, 3)") != drawn("States.MathRandom(1, 1000, 4)")
    assert all(5 <= drawn(f"States.MathRandom(5, 8, {seed})") < 8 for seed in range(50))
    first, second = drawn("States.Array(States.UUID(), States.UUID())")
    assert first != second
    assert len(first) == len(second) == 36
    assert first[14] == "4"
    assert drawn("States.UUID()") == first


@pytest.mark.parametrize(
    "call",
    [
        "States.Format('{}')",
        "States.Format('{}', 1, 2)",
        "States.Format(1)",
        "States.ArrayPartition($.array, 0)",
        "States.ArrayPartition('x', 1)",
        "States.ArrayRange(1, 2000, 1)",
        "States.ArrayRange(1, 2, 0)",
        "States.ArrayGetItem($.array, 9)",
        "States.ArrayGetItem($.array, -1)",
        "States.ArrayLength('x')",
        "States.Base64Decode('%%%')",
        "States.Base64Encode($.long)",
        "States.Hash('x', 'SHA-3')",
        "States.JsonMerge($.one, $.two, true)",
        "States.JsonMerge($.one, 3, false)",
        "States.StringToJson('{')",
        "States.MathAdd('1', 2)",
        "States.MathRandom(5, 5)",
        "States.StringSplit(1, ',')",
        "States.Array($.nope)",
        "States.Array($nope)",
        "States.MathAdd(9223372036854775807, 1)",
        "States.StringToJson('[1e999]')",
        "States.StringToJson('NaN')",
    ],
)
def test_a_failed_intrinsic_function_is_a_runtime_error(call):
    with pytest.raises(StateError) as failure:
        compile_intrinsic(call).run(scope(VALUE))
    assert failure.value.error == "States.Runtime"


def test_nested_calls_cannot_build_a_huge_value():
    call = "$.long"
    for _ in range(9):
        call = f"States.Array({call}, {call})" if len(call) < 4000 else f"States.Array({call})"
    with pytest.raises(StateError) as failure:
        compile_intrinsic(call).run(scope(VALUE))
    assert failure.value.error == "States.DataLimitExceeded"


@pytest.mark.parametrize(
    "call",
    [
        *("States.Nope()", "States.UUID(1)", "States.ArrayLength()", "States.MathAdd(1)", "States.Hash('x')"),
        *("Format('x')", "States.Format('x'", "States.Format('x',)", "States.Format(x)", "States.Array(1 2)"),
        *(
            "States.Array(1) x",
            "States.Array($.a[)",
            "States.Array('x)",
            "States.UUID" + "(States.Array" * 20 + "()" * 20,
        ),
    ],
)
def test_a_wrong_call_is_refused(call):
    with pytest.raises(QueryRefusedError):
        compile_intrinsic(call)


def test_unique_items_of_a_long_array_are_found_in_linear_time():
    array = [{"n": number, "f": float(number)} for number in range(20_000)]
    assert compile_intrinsic("States.ArrayUnique($)").run(scope([*array, *array])) == array


def test_there_are_all_eighteen():
    assert len(INTRINSICS) == 18


def test_the_variables_of_a_call_are_known():
    assert compile_intrinsic("States.Array($a, $.b, States.ArrayLength($c.d))").variables == ("a", "c")
