"""The query languages by name, and how each compiles a template."""

from collections.abc import Callable, Mapping

from aliquot.workflow.errors import QueryRefusedError
from aliquot.workflow.query.jsonata import compile_checked_jsonata, compile_jsonata
from aliquot.workflow.query.python import compile_python
from aliquot.workflow.query.templates import Query, compile_path_template, compile_text_template, constant
from aliquot.workflow.values import Value

JSONPATH = "JSONPath"
JSONATA = "JSONata"
PYTHON = "Python"
OPEN, CLOSE = "{%", "%}"


def _compile_text(compile_source: Callable[[str], Query]) -> Callable[[str], Query]:
    def compile_text(text: str) -> Query:
        if not text.startswith(OPEN):
            return constant(text)
        if not text.endswith(CLOSE) or len(text) < len(OPEN) + len(CLOSE):
            raise QueryRefusedError(f"{text!r} begins with {OPEN} and does not end with {CLOSE}")
        return compile_source(text[len(OPEN) : -len(CLOSE)])

    return compile_text


TextCompilers = Mapping[str, Callable[[str], Query]]
CHECKING: TextCompilers = {JSONATA: _compile_text(compile_jsonata), PYTHON: _compile_text(compile_python)}
CHECKED: TextCompilers = {
    **CHECKING,
    JSONATA: _compile_text(compile_checked_jsonata),
}  # of definitions without mistakes
LANGUAGES = (JSONPATH, *CHECKING)


def compile_template(language: str, template: Value, compilers: TextCompilers = CHECKING) -> Query:
    """Compile a template in one of the languages."""
    if language == JSONPATH:
        return compile_path_template(template)
    return compile_text_template(template, compilers[language])


def is_expression(value: Value) -> bool:
    """Return whether a value is text in `{% %}`."""
    return isinstance(value, str) and value.startswith(OPEN)
