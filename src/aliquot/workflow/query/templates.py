"""Payload templates: JSON in which some values are computed.

In JSONPath a field whose name ends in `.$` has a path or an intrinsic function as its value. In the other languages
every string in `{% %}` is an expression. A template without such parts is a constant.
"""

from collections.abc import Callable
from typing import NamedTuple

from aliquot.workflow.errors import QueryRefusedError
from aliquot.workflow.query.intrinsics import compile_intrinsic
from aliquot.workflow.query.jsonpath import compile_path
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.values import Value, bounded

MARK = ".$"
Run = Callable[[Scope], Value]


class Query(NamedTuple):
    """A compiled query: how it runs, the variables that it reads, and whether it may take long."""

    run: Run
    variables: tuple[str, ...] = ()
    slow: bool = False
    constant: bool = False
    parts: tuple[str, ...] = ()  # the fields of `states` that it reads


CompileText = Callable[[str], Query]


def constant(value: Value) -> Query:
    return Query(lambda scope: value, constant=True)


def compile_path_or_intrinsic(source: Value) -> Query:
    """Compile the value of a field that ends in `.$`."""
    if not isinstance(source, str):
        raise QueryRefusedError(f"a field that ends in .$ has a path or an intrinsic function, not {source!r}")
    if source.startswith("$"):
        path = compile_path(source)
        return Query(path, (path.variable,) if path.variable else ())
    call = compile_intrinsic(source)
    return Query(call.run, call.variables)


def compile_path_template(template: Value) -> Query:
    """Compile a payload template of JSONPath."""
    found = _path_part(template)
    return found if found.constant else found._replace(run=_bounded(found.run))


def _bounded(run: Run) -> Run:
    return lambda scope: bounded(run(scope))


def _path_part(template: Value) -> Query:
    if isinstance(template, dict):
        fields: list[tuple[str, Query]] = []
        for name, value in template.items():
            if name.endswith(MARK):
                if name[: -len(MARK)] in template:
                    raise QueryRefusedError(f"the template has both {name!r} and {name[: -len(MARK)]!r}")
                fields.append((name[: -len(MARK)], compile_path_or_intrinsic(value)))
            else:
                fields.append((name, _path_part(value)))
        return _object(fields, template)
    if isinstance(template, list):
        return _array([_path_part(value) for value in template], template)
    return constant(template)


def compile_text_template(template: Value, compile_text: CompileText) -> Query:
    """Compile a template in which strings may be expressions. Each of them bounds its own value."""
    found = _text_part(template, compile_text)
    alone = found.constant or isinstance(template, str)
    return found if alone else found._replace(run=_bounded(found.run))


def _text_part(template: Value, compile_text: CompileText) -> Query:
    if isinstance(template, str):
        return compile_text(template)
    if isinstance(template, dict):
        return _object([(name, _text_part(value, compile_text)) for name, value in template.items()], template)
    if isinstance(template, list):
        return _array([_text_part(value, compile_text) for value in template], template)
    return constant(template)


def joined(queries: list[Query], run: Run) -> Query:
    """Return a query that is made of others."""
    return Query(
        run,
        tuple(dict.fromkeys(name for query in queries for name in query.variables)),
        any(query.slow for query in queries),
        parts=tuple(dict.fromkeys(part for query in queries for part in query.parts)),
    )


def _object(fields: list[tuple[str, Query]], template: Value) -> Query:
    if all(query.constant for _, query in fields):
        return constant(template)
    parts = [(name, query.run) for name, query in fields]
    return joined([query for _, query in fields], lambda scope: {name: run(scope) for name, run in parts})


def _array(queries: list[Query], template: Value) -> Query:
    if all(query.constant for query in queries):
        return constant(template)
    parts = [query.run for query in queries]
    return joined(queries, lambda scope: [run(scope) for run in parts])
