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
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
BOUND = re.compile(r"_?(DEEPEST|FEWEST|FURTHEST|HIGHEST|LARGEST|LEAST|LONGEST|LOWEST|MOST|SHORTEST|SMALLEST)(_|$)")
MIB = re.compile(r"2 ?\*\* ?[123]0\b|\b1 ?<< ?20\b|\b1024 ?\* ?1024\b|\b1_?048_?576\b")
MILLISECONDS_NOW = re.compile(r"time_ns\(\) ?// ?1_?000_?000\b|time\.time\(\) ?\* ?1_?000\b")
UNITS = {"aliquot/core/units.py", "aliquot/runtime/units.py"}  # sandboxes import nothing of the core
NOT_SIZES = {"aliquot/storage/view/wire.py", "aliquot/live/store/schema.py"}  # flags of the kernel, SQL
STANDALONE = re.compile(r"aliquot_bench/(\w+/functions/|views/reader\.py)")  # measured programs import nothing of ours


class SourceFile:
    """A module's docstrings, classes and variables, read in a single walk over its tree."""

    def __init__(self, root, path):
        self.name = f"{root.name}/{path.relative_to(root)}"
        self.text = path.read_text(encoding="utf-8")
        self.docstrings, self.classes, self.variables = [], [], []
        tree = ast.parse(self.text)
        self.docstring = ast.get_docstring(tree)
        for node in ast.walk(tree):
            place = f"{self.name}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                self.docstrings.append((place, text))
            if isinstance(node, ast.ClassDef):
                self.classes.append(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.variables.append((place, node.id))


@pytest.fixture(scope="module")
def sources():
    """Read every module once."""
    return [SourceFile(root, path) for root in ROOTS for path in sorted(root.rglob("*.py"))]


def docstrings(sources):
    return [found for source in sources for found in source.docstrings]


def test_every_module_opens_with_what_it_is_for(sources):
    assert not [source.name for source in sources if not source.docstring]


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
    assert not [found for source in sources for found in source.variables if BOUND.match(found[1])]


def test_class_names_are_unique_within_a_package(sources):
    places = defaultdict(list)
    for source in sources:
        root, first, *rest = source.name.split("/")
        package = f"{root}.{first}" if root == "aliquot" and rest else root
        for name in source.classes:
            places[package, name].append(source.name)
    assert not {key: found for key, found in places.items() if len(found) > 1}


def test_mebibytes_are_defined_in_one_place(sources):
    wrong = [
        f"{source.name}: {line.strip()}"
        for source in sources
        if source.name not in UNITS | NOT_SIZES and not STANDALONE.match(source.name)
        for line in source.text.splitlines()
        if MIB.search(line)
    ]
    assert not wrong


def test_the_clock_in_milliseconds_is_read_in_one_place(sources):
    assert [source.name for source in sources if MILLISECONDS_NOW.search(source.text)] == ["aliquot/clock.py"]
