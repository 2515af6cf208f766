"""JSONPath: definite and indefinite paths, reference paths, and what is refused."""

import pytest
from workflow_scopes import scope

from aliquot.workflow.errors import QueryRefusedError, StateError
from aliquot.workflow.query.jsonpath import compile_path, compile_reference_path
from aliquot.workflow.query.scope import MISSING

STORE = {
    "a": 1,
    "null": None,
    "w-x": 2,
    "with space": 3,
    "books": [{"p": 8, "n": "x", "tags": ["t"]}, {"p": 12, "n": "y"}, {"p": 20}],
    "nested": {"p": 1, "deep": {"p": 2}},
}


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$", STORE),
        ("$.a", 1),
        ("$.null", None),
        ("$.w-x", 2),
        ("$['with space']", 3),
        ('$["a"]', 1),
        ("$.books[0].n", "x"),
        ("$.books[-1].p", 20),
        ("$['books'][1]['n']", "y"),
        ("$.books[*].p", [8, 12, 20]),
        ("$.books[0:2].p", [8, 12]),
        ("$.books[1:].p", [12, 20]),
        ("$.books[:1].p", [8]),
        ("$.books[-2:].p", [12, 20]),
        ("$.books[::2].p", [8, 20]),
        ("$.books[0,2].p", [8, 20]),
        ("$['a','w-x']", [1, 2]),
        ("$.nested.*", [1, {"p": 2}]),
        ("$.nested..p", [1, 2]),
        ("$..deep", [{"p": 2}]),
        ("$..tags[0]", ["t"]),
        ("$..nope", []),
        ("$.books[*].nope", []),
        ("$.books[9:].p", []),
        ("$.books[?(@.p > 10)].p", [12, 20]),
        ("$.books[?(@.p >= 8 && @.n == 'y')].p", [12]),
        ("$.books[?(@.p < 9 || @.p == 20)].p", [8, 20]),
        ("$.books[?(!(@.n))].p", [20]),
        ("$.books[?(@.n)].p", [8, 12]),
        ("$.books[?(@.n != 'x')].p", [12, 20]),
        ("$.books[?(@.p in [8, 20])].p", [8, 20]),
        ("$.books[?(@.p nin [8, 20])].p", [12]),
        ("$.books[?(@.p > $.a)].p", [8, 12, 20]),
        ("$.books[?(@.n > 5)]", []),
        ("$.books[?(@.tags[0] == 't')].p", [8]),
        ("$.books[?(@.p > 100)]", []),
        ("$$.Execution.Id", "run-1"),
        ("$v", 7),
        ("$record.inner[0]", "z"),
    ],
)
def test_a_path_selects(path, selected):
    assert compile_path(path)(scope(STORE, {"v": 7, "record": {"inner": ["z"]}})) == selected


@pytest.mark.parametrize("path", ["$.nope", "$.a.b", "$.books[9]", "$.books[-9]", "$.a[0]", "$.books.p", "$v.x"])
def test_a_definite_path_that_selects_nothing_fails_the_state(path):
    compiled = compile_path(path)
    assert compiled.find(scope(STORE, {"v": 7})) is MISSING
    with pytest.raises(StateError) as failure:
        compiled(scope(STORE, {"v": 7}))
    assert failure.value.error == "States.Runtime"
    assert path in failure.value.cause


@pytest.mark.parametrize(
    "path",
    [
        *("", "a", "a.b", "$.", "$..", "$[", "$[]", "$['a]", "$[a]", "$.a[?(@.b =~ /x/)]", "$[?(@.a >)]", "$[?@.a]"),
        *(
            "$[?(@.a]",
            "$[1:2:0]",
            "$.a b",
            "$[?(1)]",
            "$.a[0",
            "$1",
            "$.a..",
            "$[?(" + "(" * 50 + "@.a" + ")" * 51 + "]",
            "$[?(@.a == $..b)]",
            "$[?(@..a)]",
            "$..a..b..c..d",
        ),
        "$." + "a" * 5000,
    ],
)
def test_a_wrong_path_is_refused(path):
    with pytest.raises(QueryRefusedError):
        compile_path(path)


def test_a_path_that_would_select_very_much_fails():
    wide = {"x": [[list(range(60)) for _ in range(60)] for _ in range(60)]}
    with pytest.raises(StateError, match="more than"):
        compile_path("$..*..*..*")(scope(wide))


@pytest.mark.parametrize(
    ("path", "root", "placed"),
    [
        ("$", {"a": 1}, "new"),
        ("$.b", {"a": 1}, {"a": 1, "b": "new"}),
        ("$.a", {"a": 1}, {"a": "new"}),
        ("$.x.y", {"a": 1}, {"a": 1, "x": {"y": "new"}}),
        ("$.l[1]", {"l": [1, 2]}, {"l": [1, "new"]}),
        ("$['x y']", {}, {"x y": "new"}),
    ],
)
def test_a_reference_path_places_a_value_and_leaves_the_root(path, root, placed):
    before = repr(root)
    assert compile_reference_path(path).place(root, "new") == placed
    assert repr(root) == before


@pytest.mark.parametrize(("path", "root"), [("$.a.b", {"a": 1}), ("$.a", [1]), ("$.a", 3), ("$.l[2]", {"l": [1]})])
def test_a_place_that_does_not_fit_fails_the_state(path, root):
    with pytest.raises(StateError) as failure:
        compile_reference_path(path).place(root, "new")
    assert failure.value.error == "States.ResultPathMatchFailure"


@pytest.mark.parametrize("path", ["$.a[*]", "$..a", "$.a[-1]", "$['a','b']", "$.a[0:1]", "$[?(@.a)]"])
def test_a_reference_path_names_one_place(path):
    with pytest.raises(QueryRefusedError):
        compile_reference_path(path)
