"""Modules made of source text, and workflows of such modules run offline."""

import itertools
import linecache
import sys
from types import ModuleType

from aliquot.testing.workflow import WorkflowShell, in_process

numbers = itertools.count()


def module_of(source):
    """Run source as a module whose lines can be read, as those of a file."""
    name = f"generated_module_{next(numbers)}"
    module = ModuleType(name)
    path = f"/generated/{name}.py"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - a test's own source
    return module


def shell_of(module, workflow, app="app"):
    """Return a shell for a workflow of a module, in which all functions and workflows of its app run."""
    found = getattr(module, app)
    functions = {one.action: in_process(one.raw) for one in found.functions.values()}
    functions |= {one.action: in_process(one.raw) for one in found.workflows.values()}
    return WorkflowShell(workflow.definition(), functions)


def forget(module):
    linecache.cache.pop(f"/generated/{module.__name__}.py", None)
    sys.modules.pop(module.__name__, None)
