"""Read single fields of a state: compile their queries, and collect what is wrong with them."""

from collections.abc import Callable, Mapping

from aliquot.workflow.errors import QUERY_FAILED, RUNTIME, QueryRefusedError, StateError
from aliquot.workflow.language.records import Complaint
from aliquot.workflow.query.jsonpath import ReferencePath, compile_path, compile_reference_path
from aliquot.workflow.query.languages import CHECKING, JSONPATH, TextCompilers, compile_template, is_expression
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.query.templates import Query, compile_path_or_intrinsic, constant
from aliquot.workflow.values import Value, is_number, is_whole, kind_of

MAX_SECONDS = 99_999_999
Test = Callable[[Value], bool]
INPUT_PARTS = ("input", "context")


def not_here(_: Scope) -> Value:
    """Refuse to run a query that was not compiled, because a worker runs it."""
    raise RuntimeError("the queries of this state run beside the event loop")


DEFERRED = Query(not_here, slow=True)


class Fields:
    """The fields of one state, or of one rule in it. Complaints go to a common list.

    `reads` has the variables that the queries read, with the name of the field.
    """

    def __init__(
        self,
        state: str,
        language: str,
        raw: Mapping[str, Value],
        complaints: list[Complaint],
        compilers: TextCompilers = CHECKING,
        *,
        deferred: bool = False,
    ) -> None:
        """`deferred` leaves the queries of a checked state uncompiled. Its phases cannot run here then."""
        self.state = state
        self.language = language
        self.raw = raw
        self.complaints = complaints
        self.compilers = compilers
        self.deferred = deferred
        self.reads: list[tuple[str, str]] = []

    def complain(self, field: str, reason: str) -> None:
        self.complaints.append(Complaint(self.state, field, reason))

    def inner(self, raw: Mapping[str, Value]) -> "Fields":
        """Return the fields of a rule inside the state. What it reads counts as read by the state."""
        fields = Fields(self.state, self.language, raw, self.complaints, self.compilers, deferred=self.deferred)
        fields.reads = self.reads
        return fields

    def compiled(self, field: str, compile_query: Callable[[], Query], parts: tuple[str, ...] = INPUT_PARTS) -> Query:
        """Return a compiled query, or a constant after a complaint."""
        if self.deferred:
            return DEFERRED
        try:
            query = compile_query()
        except QueryRefusedError as error:
            self.complain(field, str(error))
            return constant(None)
        self.reads.extend((field, name) for name in query.variables)
        for part in query.parts:
            if part not in parts:
                self.complain(field, f"states.{part} has no value here; there are states.{', states.'.join(parts)}")
        return query

    def template(self, field: str, parts: tuple[str, ...] = INPUT_PARTS) -> Query | None:
        """Return the query of a template, or None if the field is missing."""
        if field not in self.raw:
            return None
        return self.expression(field, self.raw[field], parts)

    def expression(self, field: str, template: Value, parts: tuple[str, ...] = INPUT_PARTS) -> Query:
        """Return the query of a given template, or a constant after a complaint."""
        return self.compiled(field, lambda: compile_template(self.language, template, self.compilers), parts)

    def path(self, field: str) -> Query | None:
        """Return the query of a path. The path null stands for an empty object."""
        if field not in self.raw:
            return None
        source = self.raw[field]
        if source is None:
            return Query(lambda scope: {})
        if not isinstance(source, str):
            self.complain(field, f"a path is a string that begins with $, or null, not {kind_of(source)}")
            return None

        def compile_query() -> Query:
            path = compile_path(source)
            return Query(path, (path.variable,) if path.variable else ())

        return self.compiled(field, compile_query)

    def reference(self, field: str) -> ReferencePath | None:
        """Return a reference path into the input."""
        source = self.raw.get(field)
        if not isinstance(source, str):
            self.complain(field, f"a reference path is a string that begins with $, or null, not {kind_of(source)}")
            return None
        try:
            path = compile_reference_path(source)
        except QueryRefusedError as error:
            self.complain(field, str(error))
            return None
        if path.path.parsed.root != "$":
            self.complain(field, f"{source!r} must begin with $. A result is placed in the input of the state")
            return None
        return path

    def reference_query(self, field: str) -> Query | None:
        """Return the query of a path that selects one value."""
        query = self.path(field)
        source = self.raw.get(field)
        if query is None or not isinstance(source, str):
            self.complain(field, f"expected a reference path, not {kind_of(source)}")
            return None
        try:
            compile_reference_path(source)
        except QueryRefusedError as error:
            self.complain(field, str(error))
        return query

    def value(self, field: str, test: Test, expected: str) -> Query | None:
        """Return the query of a field, or of its twin that ends in Path, whose value must pass a test."""
        query: Query | None = None
        source = field
        if f"{field}Path" in self.raw:
            source = f"{field}Path"
            query = self.reference_query(source)
        elif field in self.raw:
            if self.language == JSONPATH or not is_expression(self.raw[field]):
                if not test(self.raw[field]):
                    self.complain(field, f"expected {expected}, not {self.raw[field]!r}")
                    return None
                return constant(self.raw[field])
            query = self.template(field)
        return None if query is None else self._tested(query, source, test, expected)

    def _tested(self, query: Query, field: str, test: Test, expected: str) -> Query:
        error = RUNTIME if self.language == JSONPATH else QUERY_FAILED

        def run(scope: Scope) -> Value:
            value = query.run(scope)
            if not test(value):
                raise StateError(error, f"{field} must give {expected}, not {value!r:.200}")
            return value

        return query._replace(run=run)

    def text(self, field: str) -> Query | None:
        """Return the query of Error or Cause, which may be computed."""
        if f"{field}Path" in self.raw:
            name = f"{field}Path"
            source = self.raw[name]
            if isinstance(source, str) and source.startswith("$"):
                query = self.reference_query(name) or constant(None)
            else:
                query = self.compiled(name, lambda: compile_path_or_intrinsic(source))
            return self._tested(query, name, lambda value: isinstance(value, str), "a string")
        return self.value(field, lambda value: isinstance(value, str), "a string")


def is_seconds(value: Value) -> bool:
    return is_whole(value) and 0 < value <= MAX_SECONDS


def is_wait(value: Value) -> bool:
    return is_whole(value) and 0 <= value <= MAX_SECONDS


def is_count(value: Value) -> bool:
    return is_whole(value) and value >= 0


def is_percentage(value: Value) -> bool:
    return is_number(value) and 0 <= value <= 100  # noqa: PLR2004 - percent
