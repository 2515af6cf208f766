"""The rules for names and docstrings that a linter does not check."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import aliquot
import aliquot_bench

ROOTS = [Path(aliquot.__file__).parent, Path(aliquot_bench.__file__).parent]
REFUSED_OPENERS = {
    *("and", "as", "how", "nobody", "nothing", "of", "or", "somebody", "that", "those"),
    *("what", "whatever", "where", "whether", "which", "who", "whoever", "whose", "why"),
}
MIN_WORDS = 3
BOUND = re.compile(r"_?(DEEPEST|FEWEST|FURTHEST|HIGHEST|LARGEST|LEAST|LONGEST|LOWEST|MOST|SHORTEST|SMALLEST)(_|$)")
MIB = re.compile(r"2 ?\*\* ?[123]0\b|\b1 ?<< ?20\b|\b1024 ?\* ?1024\b|\b1_?048_?576\b")
MILLISECONDS_NOW = re.compile(r"time_ns\(\) ?// ?1_?000_?000\b|time\.time\(\) ?\* ?1_?000\b")
UNITS = {"aliquot/core/units.py", "aliquot/runtime/units.py"}  # sandboxes import nothing of the core
NOT_SIZES = {"aliquot/storage/view/wire.py", "aliquot/live/store/schema.py"}  # flags of the kernel, SQL
STANDALONE = re.compile(r"aliquot_bench/(\w+/functions/|views/reader\.py)")  # measured programs import nothing of ours


@pytest.fixture(scope="module")
def sources():
    """Read every module once: its name, its text and its tree."""
    found = []
    for root in ROOTS:
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.append((f"{root.name}/{path.relative_to(root)}", text, ast.parse(text)))
    return found


def docstrings(sources):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name, _, tree in sources:
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{name}:{getattr(node, 'lineno', 1)}", text


def test_docstrings_begin_with_a_verb_or_a_noun(sources):
    wrong = [
        f"{place}: {text.splitlines()[0]}"
        for place, text in docstrings(sources)
        if re.split(r"\W", text, maxsplit=1)[0].lower() in REFUSED_OPENERS
    ]
    assert not wrong


def test_docstrings_are_sentences(sources):
    assert not [f"{place}: {text}" for place, text in docstrings(sources) if len(text.split()) < MIN_WORDS]


def test_bounds_are_called_max_and_min(sources):
    wrong = [
        f"{name}:{node.lineno}: {node.id}"
        for name, _, tree in sources
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and BOUND.match(node.id)
    ]
    assert not wrong


def test_class_names_are_unique_within_a_package(sources):
    places = defaultdict(list)
    for name, _, tree in sources:
        root, first, *rest = name.split("/")
        package = f"{root}.{first}" if root == "aliquot" and rest else root
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[package, node.name].append(name)
    assert not {key: found for key, found in places.items() if len(found) > 1}


def test_mebibytes_are_defined_in_one_place(sources):
    wrong = [
        f"{name}: {line.strip()}"
        for name, text, _ in sources
        if name not in UNITS | NOT_SIZES and not STANDALONE.match(name)
        for line in text.splitlines()
        if MIB.search(line)
    ]
    assert not wrong


def test_the_clock_in_milliseconds_is_read_in_one_place(sources):
    assert [name for name, text, _ in sources if MILLISECONDS_NOW.search(text)] == ["aliquot/clock.py"]
