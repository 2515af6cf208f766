"""Functions that are defined in cells of a notebook, and chains of functions, on a real platform."""

import linecache
import sys
import types

import pytest

from aliquot.sdk import errors


class Notebook:
    """Runs cells as IPython does: each has a name of its own, its source is in `linecache`, and there is no file."""

    def __init__(self):
        self.module = types.ModuleType("__main__")
        self.count = 0

    def run(self, cell, *, keep_source=True):
        self.count += 1
        name = f"<ipython-input-{self.count}-abc>"
        if keep_source:
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), self.module.__dict__)  # noqa: S102 - as a notebook does

    def value(self, expression):
        return eval(expression, self.module.__dict__)  # noqa: S307 - likewise


@pytest.fixture
def notebook(shared_server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", shared_server.url)
    monkeypatch.setenv("ALIQUOT_KEY", shared_server.key)
    made = Notebook()
    monkeypatch.setitem(sys.modules, "__main__", made.module)
    made.run("import aliquot\nimport os.path as paths\nfrom math import sqrt as root\napp = aliquot.App('cells')")
    made.run("LIMITS = {'most': 3, 'names': ['a']}\nhuge = object()")
    made.run("def helper(x):\n    return min(root(x), LIMITS['most'])\n")
    made.run(
        "class Point:\n    def __init__(self, x):\n        self.x = x\n    def twice(self):\n        return self.x * 2"
    )
    return made


def test_a_function_in_a_cell_brings_all_that_it_uses(notebook):
    notebook.run("@app.function\ndef near(x):\n    return [helper(x), paths.join('a', 'b'), Point(x).twice()]")
    assert notebook.value("near.remote(4)") == [2.0, "a/b", 8]
    notebook.run("@app.function\ndef near(x):\n    return x")  # the cell is changed and run again
    assert notebook.value("near.remote(4)") == 4


def test_classes_and_exceptions_of_cells_go_there_and_back(notebook):
    notebook.run("@app.cls\nclass Model:\n    @aliquot.enter\n    def load(self):\n        self.w = 2\n"
                 "    def predict(self, point):\n        return Point(point.twice() * self.w)")  # fmt: skip
    assert notebook.value("Model().predict.remote(Point(3)).x") == 12
    notebook.run("class OddError(Exception):\n    def __str__(self):\n        return 'odd'\n")
    notebook.run("@app.function\ndef odd():\n    raise OddError")
    with pytest.raises(notebook.value("OddError")) as caught:
        notebook.value("odd.remote()")
    assert 'File "notebook.py", line ' in "".join(caught.value.__notes__)


def test_a_value_that_cannot_be_sent_is_named_with_what_to_do(notebook):
    notebook.run("@app.function\ndef uses():\n    return huge")
    with pytest.raises(errors.UsageError, match=r"uses huge, a value of object, which cannot be sent; make it in the"):
        notebook.value("uses.remote()")
    notebook.run("@app.function\ndef typed():\n    return 1", keep_source=False)
    with pytest.raises(errors.UsageError, match="the source of typed cannot be read, because it was typed at the"):
        notebook.value("typed.remote()")
    notebook.run("files = aliquot.App('files', include=['data'])\n@files.function\ndef reads():\n    return 1")
    with pytest.raises(errors.UsageError, match="a notebook has no folder for 'data' to be in"):
        notebook.value("reads.remote()")


def test_a_chain_runs_here_and_on_the_platform(notebook):
    notebook.run("@app.function\ndef split(text, by=' '):\n    return text.split(by)")
    notebook.run("@app.function\ndef count(words):\n    return len(words)")
    notebook.run("@app.function\ndef square(number):\n    return number ** 2")
    notebook.run("steps = split | count | square")
    assert notebook.value("steps('a b c')") == 9
    assert notebook.value("steps.remote('a b c')") == 9
    assert notebook.value("steps.remote('a-b', by='-')") == 4
    assert notebook.value("(split | (count | square)) is steps")
    assert notebook.value("aliquot.chain(split, count, name='words').remote('a b')") == 2
    assert notebook.value("sorted(app.workflows)") == ["count_then_square", "split_then_count", *notebook.value(
        "['split_then_count_then_square', 'words']")]  # fmt: skip
    with pytest.raises(AttributeError, match="has no attribute 'split'"):
        notebook.value("steps.remote(5)")


def test_what_is_no_chain_is_refused(notebook):
    notebook.run("@app.function\ndef one(x):\n    return x\nother = aliquot.App('other')")
    notebook.run("@other.function\ndef two(x):\n    return x\n")
    notebook.run("@app.function\ndef many(*all):\n    return all\n")
    for expression, complaint in {
        "one | two": "two and cells.one are of different apps",
        "one | len": "is not a function of an app",
        "aliquot.chain(one)": "it takes 2 to 50 functions, not 1",
        "aliquot.chain(one, one, name='a b')": "'a b' is not a name",
        "aliquot.chain(one, one, name='one')": "has a function 'one' already",
        "many | one": r"cells.many takes \*all; the first function names its parameters",
    }.items():
        with pytest.raises(errors.UsageError, match=complaint):
            notebook.value(expression)
