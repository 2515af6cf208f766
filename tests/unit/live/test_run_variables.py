"""Tests of the environment variables of a run: what the process, its code and its children see."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aliquot.runtime.run_variables import RunVariables

NAME = "__OW_TEST_VARIABLE"
_getenv = ctypes.CDLL(None).getenv
_getenv.restype = ctypes.c_char_p


@pytest.fixture
def variables() -> Iterator[RunVariables]:
    made = RunVariables()
    yield made
    os.environ.pop(NAME, None)  # before the buffers are freed


def seen() -> tuple[str | None, bytes | None, str]:
    """Return the variable as the code, the C library and a child process see it."""
    child = subprocess.run(["/bin/sh", "-c", f'printf %s "${NAME}"'], capture_output=True, text=True, check=True)
    return os.environ.get(NAME), _getenv(NAME.encode()), child.stdout


def test_each_value_replaces_the_one_before_whatever_its_length(variables: RunVariables) -> None:
    for value in ("first", "2", "a longer value " * 20, "", "ümlaut"):
        variables.set({NAME: value})
        assert seen() == (value, value.encode(), value)


def test_a_function_that_changes_the_variable_gets_the_next_value_all_the_same(variables: RunVariables) -> None:
    variables.set({NAME: "one"})
    os.environ[NAME] = "changed by the function"
    variables.set({NAME: "two"})
    assert seen() == ("two", b"two", "two")
    del os.environ[NAME]
    variables.set({NAME: "two"})
    assert seen() == ("two", b"two", "two")


def test_a_function_that_replaces_the_mapping_gets_the_values_in_its_own(
    variables: RunVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"A": "1"})
    variables.set({NAME: "one"})
    assert os.environ == {"A": "1", NAME: "one"}


def test_values_that_are_new_with_every_run_do_not_fill_the_memory() -> None:
    """The C library's own `setenv` keeps about 100 bytes of each of these values."""
    code = (
        "import resource; from aliquot.runtime.run_variables import RunVariables\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "variables = RunVariables()\n"
        "variables.set({'ID': '0' * 32})\n"
        "before = peak()\n"
        "for number in range(100_000): variables.set({'ID': f'{number:032}'})\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4096  # KiB
