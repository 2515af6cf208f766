"""JSONata has the values that its first implementation, the npm package, gives it."""

import json
import math
import os
import random
import subprocess
from pathlib import Path

import pytest
from npm_client import MODULES, NODE
from workflow_scopes import scope

from aliquot.workflow.errors import QueryRefusedError, StateError
from aliquot.workflow.query.jsonata import compile_jsonata

pytestmark = pytest.mark.skipif(
    NODE is None or not (MODULES / "jsonata").is_dir(), reason="node or the npm package jsonata is not installed"
)

VALUE = {
    "n": 3,
    "f": 2.5,
    "s": "Hello World",
    "b": True,
    "none": None,
    "l": [3, 1, 2],
    "items": [
        {"name": "ham", "price": 3, "tags": ["a", "b"]},
        {"name": "jam", "price": 8, "tags": []},
        {"name": "spam", "price": 5},
    ],
    "o": {"a": 1, "b": {"c": [1, {"d": 2}]}},
    "empty": [],
}
EXPRESSIONS = """
$states.input.n + 1
$states.input.n / 2
7 % 3
-$states.input.f
1 = 1.0
$states.input.s & '!' & 3
$states.input.none
$states.input.nowhere
$states.input.items.price
$states.input.items[price > 4].name
$states.input.items[0].name
$states.input.items[-1].name
$states.input.items[[0..1]].name
$states.input.items.tags
$states.input.items.{'n': name, 'p': price}
$states.input.items{name: price}
$states.input.items^(price).name
$states.input.items^(>price).name
$states.input.items[name in ['ham', 'jam']].price
$states.input.o.b.c[1].d
$states.input.o.*
$states.input.**.d
$states.input.empty
[$states.input.empty]
[$states.input.l, 4]
$states.input.l[]
$states.input.items[price > 100]
$count($states.input.items)
$sum($states.input.l)
$max($states.input.l)
$min($states.input.l)
$average($states.input.l)
$uppercase($states.input.s)
$lowercase($states.input.s)
$substring($states.input.s, 0, 5)
$substringBefore($states.input.s, ' ')
$substringAfter($states.input.s, ' ')
$length($states.input.s)
$trim('  a  b ')
$pad('x', 5, '#')
$pad('x', -5)
$contains($states.input.s, 'World')
$contains($states.input.s, /wor/i)
$split('a,b,c', ',')
$join(['a', 'b'], '-')
$replace($states.input.s, 'o', '0')
$replace($states.input.s, /l+/, 'L')
$match('ab12', /[0-9]+/).match
$number('12.5')
$number('0x1F')
$string(1.5)
$string({'a': [1, null]})
$string(10000000)
$abs(-3)
$floor(2.7)
$ceil(2.1)
$round(2.5)
$round(3.5)
$round(123.456, 2)
$power(2, 8)
$sqrt(9)
$boolean('')
$boolean([0])
$not(true)
$exists($states.input.none)
$append([1], 2)
$sort([3, 1, 2])
$sort($states.input.items, function($l, $r) { $l.price > $r.price }).name
$reverse([1, 2])
$distinct([1, 1, 2])
$zip([1, 2], [3, 4])
$keys($states.input.o)
$lookup($states.input.o, 'a')
$spread({'a': 1, 'b': 2})
$merge([{'a': 1}, {'b': 2}])
$map([1, 2], function($x) { $x * 2 })
$map([1], function($x) { $x })
$filter([1, 2, 3], function($x) { $x > 1 })
$reduce([1, 2, 3], function($a, $x) { $a + $x })
$single([1, 2], function($x) { $x = 2 })
$each({'a': 1}, function($v, $k) { $k & $v })
$sift({'a': 1, 'b': 2}, function($v) { $v > 1 })
$type(null)
$type([])
$formatNumber(1234.5, '#,##0.00')
$formatBase(255, 16)
$formatInteger(12, 'w')
$parseInteger('twelve', 'w')
$fromMillis(0)
$toMillis('1970-01-01T00:00:01Z')
$base64encode('abc')
$base64decode('YWJj')
$encodeUrlComponent('a b')
($x := 2; $y := $x * 3; $y + 1)
($f := function($n) { $n <= 1 ? 1 : $n * $f($n - 1) }; $f(5))
$states.input.n > 2 ? 'big' : 'small'
$states.input.n > 2 and $states.input.b
$states.input.nowhere or true
'a' in $states.input.l
[1..5]
[5..1]
$states.input.l ~> $sum
$states.input.items.(price * 2)
$states.input.items.tags[0]
$states.input.s ~> $uppercase ~> $length
$string($states.input.nowhere)
{'gone': $states.input.nowhere, 'kept': null}
'a' + 1
'a' < 1
$sum('x')
$nothing(1)
null
[]
{}
[[1], [2]]
[null]
""".strip().splitlines()

# Errors are compared as errors, because their texts differ. Random expressions leave out what the reference page names:
# null where an array is expected, and true `in` an array of numbers.


def random_expressions(count):
    drawn = random.Random(7)
    atoms = [
        "$states.input.n",
        "$states.input.f",
        "2",
        "0.5",
        "$states.input.l",
        "$states.input.nowhere",
        "'a'",
        "true",
    ]
    atoms += ["$states.input.items.price", "[1, 2]", "$states.input.items[price > 3]", "$v"]

    def make(depth):
        if depth == 0 or drawn.random() < 0.2:
            return drawn.choice(atoms)
        left, right = make(depth - 1), make(depth - 1)
        forms = [
            "({0} + {1})",
            "({0} * {1})",
            "({0} & {1})",
            "({0} = {1})",
            "({0} > {1})",
            "[{0}, {1}]",
            "{{'k': {0}}}",
        ]
        forms += ["({0} ? {1} : 0)", "({0} and {1})", "$count({0})", "$append({0}, {1})", "({0}).price", "$exists({0})"]
        forms += ["$string({0})", "$map({0}, function($x) {{ $x = {1} }})", "$boolean({0})", "{0}[0]"]
        return drawn.choice(forms).format(left, right)

    return [make(drawn.randint(1, 3)) for _ in range(count)]


def by_node(sources, bindings):
    asked = json.dumps([[source, bindings] for source in sources])
    environment = {**os.environ, "NODE_PATH": str(MODULES)}
    program = Path(__file__).parent / "evaluate_jsonata.js"
    ran = subprocess.run(
        [NODE, program], input=asked, capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    return json.loads(ran.stdout)


def ours(source):
    try:
        return {"value": compile_jsonata(source).run(scope(VALUE, {"v": 7}))}
    except (StateError, QueryRefusedError):
        return {"error": "any"}


def alike(left, right):
    if isinstance(left, float | int) and isinstance(right, float | int) and not isinstance(left, bool):
        return math.isclose(left, right, rel_tol=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(part, right[key]) for key, part in left.items())
    return left == right


def differences(sources):
    bindings = {"states": {"input": VALUE, "context": {}}, "v": 7}
    found = []
    for source, theirs in zip(sources, by_node(sources, bindings), strict=True):
        mine = ours(source)
        if ("error" in mine) != ("error" in theirs) or not ("error" in mine or alike(mine["value"], theirs["value"])):
            found.append((source, mine, theirs))
    return found


def test_listed_expressions_have_the_value_of_the_npm_package():
    assert not differences(EXPRESSIONS)


def test_random_expressions_have_the_value_of_the_npm_package():
    assert not differences(random_expressions(500))
