"""The house rules that a linter does not know."""

import ast
from pathlib import Path

import pytest

import aliquot
import aliquot_bench
from aliquot.policies.admission import ADMISSION
from aliquot.policies.batching import BATCHING
from aliquot.policies.eviction import EVICTION
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.packing import PACKING
from aliquot.policies.prefetching import PREFETCHING
from aliquot.policies.provisioning import PROVISIONING
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING

ROOT = Path(aliquot.__file__).parent
BENCH = Path(aliquot_bench.__file__).parent
PRODUCT = sorted(ROOT.rglob("*.py"))
SOURCES = [*PRODUCT, *sorted(BENCH.rglob("*.py"))]
SEQUENCES = ROOT / "live" / "invocations" / "sequences"
PURE_FOLDERS = [
    *(ROOT / folder for folder in ("core", "expressions", "policies", "workflow")),
    ROOT / "storage" / "cache" / "transfers",
]
PURE = [
    *(path for folder in PURE_FOLDERS for path in sorted(folder.rglob("*.py"))),
    *sorted((ROOT / "kernels").glob("*.py")),  # its folders run graphs
    *(path for path in sorted(SEQUENCES.glob("*.py")) if path.stem != "composer"),  # which performs the commands
]
FORBIDDEN_MODULES = (
    *("asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "selectors"),
    *("signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "torch", "uuid"),
)
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "globals", "id", "hash"}


def name(path):
    return str(path.relative_to(BENCH.parent if BENCH in path.parents else ROOT))


def test_there_is_something_to_check():
    assert len(PURE) > 25
    assert all(folder.is_dir() for folder in [*PURE_FOLDERS, SEQUENCES])


def nodes_of(path):
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def imported_modules(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_pure_packages_touch_neither_clock_nor_chance_nor_the_world():
    for path in PURE:
        for node in nodes_of(path):
            for module in imported_modules(node):
                assert module.split(".")[0] not in FORBIDDEN_MODULES, f"{name(path)}:{node.lineno} imports {module}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, f"{name(path)}:{node.lineno} calls {node.func.id}"


def iterated_places(node):
    """Return the expressions whose order decides what comes first."""
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"list", "tuple", "iter"}:
        return node.args
    return []


def makes_a_set(node):
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"set", "frozenset"}
    )


def test_decisions_never_iterate_over_a_set():
    """The order of a set depends on hashes, so decisions may only test membership."""
    wrong = [
        f"{name(path)}:{place.lineno}"
        for path in PURE
        for node in nodes_of(path)
        for place in ([node] if isinstance(node, ast.SetComp) else iterated_places(node))
        if makes_a_set(place)
    ]
    assert not wrong


def test_files_have_one_idea():
    long = [name(path) for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert long == [], "look for the second idea"


TABLES = {
    "admission": ADMISSION,
    "batching": BATCHING,
    "eviction": EVICTION,
    "keepalive": KEEPALIVE,
    "packing": PACKING,
    "prefetching": PREFETCHING,
    "provisioning": PROVISIONING,
    "queueing": QUEUEING,
    "sharing": SHARING,
}


def test_every_kind_of_policy_has_a_table():
    assert {path.parent.name for path in (ROOT / "policies").glob("*/__init__.py")} == set(TABLES)


@pytest.mark.parametrize("kind", TABLES)
def test_every_policy_file_is_in_its_table(kind):
    table = TABLES[kind]
    files = {path.stem for path in (ROOT / "policies" / kind).glob("*.py")} - {"__init__"}
    assert files == set(table)
    assert list(table) == sorted(table)


def test_the_tables_name_each_policy_once_in_the_source():
    """A dictionary hides a repeated key, but the source shows it."""
    for kind in TABLES:
        nodes = nodes_of(ROOT / "policies" / kind / "__init__.py")
        keys = [key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
        assert len(keys) == len(set(keys))
