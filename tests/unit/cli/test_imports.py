"""Packages that an app imports without requiring them."""

import pytest

from aliquot import App
from aliquot.cli.imports import missing_requirements


def found(tmp_path, source, *requirements):
    """Return the modules that are found missing, for an app with one function for each tuple of requirements."""
    path = tmp_path / "words.py"
    path.write_text(source)
    app = App("words")
    for number, required in enumerate(requirements or [()]):

        def function():
            pass

        function.__name__ = function.__qualname__ = f"f{number}"
        app.function(requirements=list(required))(function)
    return missing_requirements(path, app)


def test_a_package_that_no_function_requires_is_named_with_its_line(tmp_path):
    (missing,) = found(tmp_path, "import os\nimport msgspec\n")
    assert (missing.module, missing.line, missing.functions) == ("msgspec", 2, ["words.f0"])
    text = missing.text(tmp_path / "words.py")
    assert 'words.py:2: imports msgspec, but words.f0 does not require it: requirements=["msgspec"]' in text


@pytest.mark.parametrize(
    ("source", "required"),
    [
        ("import json, os.path\nfrom collections import abc\n", ()),
        ("import aliquot\n", ()),
        ("import msgspec\n", ("msgspec>=0.19",)),
        ("import yaml\n", ("PyYAML==6.*",)),
        ("import pygments\n", ("rich",)),
        ("import helper\nfrom . import other\n", ()),
        ("def f():\n    import msgspec\n", ()),
        ("try:\n    import msgspec\nexcept ImportError:\n    pass\n", ()),
    ],
)
def test_what_is_there_or_required_is_not_missing(tmp_path, source, required):
    (tmp_path / "helper.py").touch()
    assert found(tmp_path, source, required) == []


def test_each_function_needs_what_the_file_imports(tmp_path):
    (missing,) = found(tmp_path, "import msgspec\n", ("msgspec",), (), ("rich",))
    assert missing.functions == ["words.f1", "words.f2"]
