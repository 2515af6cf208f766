"""Read Retry, Catch and Choices."""

from collections.abc import Callable

from aliquot.workflow.errors import ALL
from aliquot.workflow.language.phases import catch_phase, choose_phase, through_phase
from aliquot.workflow.language.records import Catcher, Phase, Retrier
from aliquot.workflow.language.sources import Fields, is_count, is_seconds, not_here
from aliquot.workflow.query.choice import compile_rule
from aliquot.workflow.query.languages import JSONPATH, is_expression
from aliquot.workflow.query.templates import Query, constant
from aliquot.workflow.values import Value, is_number, kind_of

MAX_DELAY_S = 31_622_400
JITTER = ("NONE", "FULL")
RETRY_FIELDS = (
    *("Comment", "ErrorEquals", "IntervalSeconds", "MaxAttempts", "BackoffRate", "MaxDelaySeconds", "JitterStrategy"),
)
CATCH_FIELDS = ("Comment", "ErrorEquals", "Next", "Assign")


def rows(fields: Fields, name: str) -> list[Fields]:
    """Return the fields of each rule of a list, after a complaint about those that are no objects."""
    raw = fields.raw.get(name, [])
    if not isinstance(raw, list):
        fields.complain(name, f"expected a list of rules, not {kind_of(raw)}")
        return []
    made = []
    for position, row in enumerate(raw):
        if isinstance(row, dict):
            made.append(fields.inner(row))
        else:
            fields.complain(f"{name}[{position}]", f"expected an object, not {kind_of(row)}")
    return made


def _errors(row: Fields, place: str, *, last: bool) -> tuple[str, ...]:
    """Return ErrorEquals. States.ALL must stand alone, and in the last rule."""
    raw = row.raw.get("ErrorEquals")
    if not isinstance(raw, list) or not raw or not all(isinstance(name, str) for name in raw):
        row.complain(f"{place}.ErrorEquals", "expected a list of error names, which must not be empty")
        return ()
    if ALL in raw and len(raw) > 1:
        row.complain(f"{place}.ErrorEquals", f"{ALL} stands for all errors, so it must stand alone")
    if ALL in raw and not last:
        row.complain(f"{place}.ErrorEquals", f"{ALL} must be in the last rule, because no later rule could match")
    return tuple(raw)


def _known(row: Fields, place: str, known: tuple[str, ...]) -> None:
    if not isinstance(row.raw.get("Comment", ""), str):
        row.complain(f"{place}.Comment", f"expected a string, not {kind_of(row.raw['Comment'])}")
    for name in row.raw:
        if name not in known:
            row.complain(f"{place}.{name}", f"this field does not belong here; there are {', '.join(known)}")


def _is_rate(value: Value) -> bool:
    return is_number(value) and value >= 1


def read_retriers(fields: Fields) -> tuple[Retrier, ...]:
    """Read the rules of Retry."""
    made = []
    found = rows(fields, "Retry")
    for position, row in enumerate(found):
        place = f"Retry[{position}]"
        _known(row, place, RETRY_FIELDS)
        errors = _errors(row, place, last=position == len(found) - 1)
        interval = _number(row, place, "IntervalSeconds", 1, is_seconds, "a positive integer")
        delay = _number(row, place, "MaxDelaySeconds", None, is_seconds, "a positive integer")
        if delay is not None and not interval < delay <= MAX_DELAY_S:
            row.complain(f"{place}.MaxDelaySeconds", f"must be above IntervalSeconds and at most {MAX_DELAY_S}")
        jitter = row.raw.get("JitterStrategy", "NONE")
        if jitter not in JITTER:
            row.complain(f"{place}.JitterStrategy", f"expected NONE or FULL, not {jitter!r}")
        rate = _number(row, place, "BackoffRate", 2.0, _is_rate, "a number from 1 on")
        attempts = _number(row, place, "MaxAttempts", 3, is_count, "an integer from 0 on")
        made.append(Retrier(errors, interval, attempts, rate, delay, jitter == "FULL"))
    return tuple(made)


def _number(row: Fields, place: str, name: str, default: Value, test: Callable[[Value], bool], expected: str) -> Value:
    value = row.raw.get(name, default)
    if name in row.raw and not test(value):
        row.complain(f"{place}.{name}", f"expected {expected}, not {value!r}")
        return default
    return value


def read_target(row: Fields, place: str, name: str = "Next") -> str:
    """Return the name of the next state, which the flow's check looks up."""
    target = row.raw.get(name)
    if not isinstance(target, str) or not target:
        row.complain(f"{place}.{name}" if place else name, "expected the name of a state of the same machine")
        return ""
    return target


def read_catchers(fields: Fields) -> tuple[Catcher, ...]:
    """Read the rules of Catch."""
    made = []
    found = rows(fields, "Catch")
    known = (*CATCH_FIELDS, "ResultPath" if fields.language == JSONPATH else "Output")
    for position, row in enumerate(found):
        place = f"Catch[{position}]"
        _known(row, place, known)
        errors = _errors(row, place, last=position == len(found) - 1)
        made.append(Catcher(errors, read_target(row, place), catch_phase(row)))
    return tuple(made)


def read_choices(fields: Fields) -> tuple[Phase, tuple[str, ...]]:
    """Read Choices and Default. Returns the phase, and the target of each rule with that of Default at the end."""
    raw = fields.raw.get("Choices")
    if not isinstance(raw, list) or not raw:
        fields.complain("Choices", "expected a list of rules, which must not be empty")
    if fields.deferred and isinstance(raw, list):  # it was checked, and its rules run elsewhere
        last = [fields.raw["Default"]] if "Default" in fields.raw else []
        return Phase(not_here, slow=True), (*(row["Next"] for row in raw), *last)
    rules: list[tuple[Query, Phase]] = []
    targets = []
    for position, row in enumerate(rows(fields, "Choices")):
        place = f"Choices[{position}]"
        condition = _condition(row, place)
        extra = {name: fields.raw[name] for name in ("InputPath", "OutputPath") if name in fields.raw}
        inner = row.inner({**extra, **{name: row.raw[name] for name in ("Assign", "Output") if name in row.raw}})
        rules.append((condition, through_phase(inner)))
        targets.append(read_target(row, place))
    default = None
    if "Default" in fields.raw:
        targets.append(read_target(fields, "", "Default"))
        default = through_phase(fields)
    return choose_phase(fields, rules, default), tuple(targets)


def _condition(row: Fields, place: str) -> Query:
    if row.language == JSONPATH:
        if "Output" in row.raw or "Condition" in row.raw:
            row.complain(place, "Condition and Output belong to JSONata and Python, not to JSONPath")
            return constant(value=False)
        return row.compiled(place, lambda: compile_rule(row.raw))
    _known(row, place, ("Comment", "Condition", "Next", "Assign", "Output"))
    source = row.raw.get("Condition")
    if not is_expression(source):
        row.complain(f"{place}.Condition", f"expected an expression in {{% %}}, not {source!r}")
        return constant(value=False)
    return row.expression(f"{place}.Condition", source)
