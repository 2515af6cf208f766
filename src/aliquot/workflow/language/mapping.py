"""Read a Map state: its items, their selection and batches, and how much may run and fail."""

from aliquot.workflow.errors import QUERY_FAILED, RUNTIME, StateError
from aliquot.workflow.language.phases import Made, effective, phase
from aliquot.workflow.language.records import Phase
from aliquot.workflow.language.sources import Fields, is_count, is_percentage, is_seconds
from aliquot.workflow.query.languages import JSONPATH
from aliquot.workflow.query.scope import MAX_STEPS_ON_THE_LOOP, Scope, TooLongError
from aliquot.workflow.query.templates import Query
from aliquot.workflow.values import Value, described_text, kind_of

MAX_ITEMS = 100_000
BATCH_FIELDS = (
    *("MaxItemsPerBatch", "MaxItemsPerBatchPath", "MaxInputBytesPerBatch", "MaxInputBytesPerBatchPath", "BatchInput"),
)


def map_phase(fields: Fields) -> Phase:
    """Return the phase that makes the inputs of all iterations when a Map state is entered."""
    jsonpath = fields.language == JSONPATH
    start = effective(fields)
    items = fields.path("ItemsPath") if jsonpath else _items(fields)
    selector = fields.template("ItemSelector" if "ItemSelector" in fields.raw else "Parameters")
    named = {
        "concurrency": fields.value("MaxConcurrency", is_count, "an integer from 0 on"),
        "tolerated": fields.value("ToleratedFailureCount", is_count, "an integer from 0 on"),
        "percentage": fields.value("ToleratedFailurePercentage", is_percentage, "a number from 0 to 100"),
    }
    others = [(name, query.run) for name, query in named.items() if query is not None]
    batches = _Batches(fields) if "ItemBatcher" in fields.raw else None
    error = RUNTIME if jsonpath else QUERY_FAILED

    def run(scope: Scope) -> Made:
        inner = scope.at(start(scope)) if jsonpath else scope
        found = inner.input if items is None else items.run(inner)
        if not isinstance(found, list):
            raise StateError(error, f"The items of the state '{fields.state}' must be an array, not {kind_of(found)}")
        if len(found) > MAX_ITEMS:
            raise StateError(
                error, f"The state '{fields.state}' has {len(found)} items; at most {MAX_ITEMS} are allowed"
            )
        inputs = found if selector is None else _selected(inner, selector, found)
        made: Made = {"items": found, "inputs": inputs if batches is None else batches.made(inner, inputs)}
        for name, query in others:
            made[name] = query(inner)
        return made

    return phase(run, items, selector, *named.values(), *(batches.queries if batches else ()))


def _items(fields: Fields) -> Query | None:
    """Return the query of Items: an array in which expressions may stand, or an expression."""
    raw = fields.raw.get("Items", "{%")
    if not isinstance(raw, list) and not (isinstance(raw, str) and raw.startswith("{%")):
        fields.complain("Items", f"expected an array or an expression in {{% %}}, not {kind_of(raw)}")
        return None
    return fields.template("Items")


def _selected(scope: Scope, selector: Query, items: list[Value]) -> list[Value]:
    """Return the input of each iteration. Many items are selected beside the event loop."""
    if scope.work.left is not None and len(items) > MAX_STEPS_ON_THE_LOOP:
        raise TooLongError
    made = []
    for index, value in enumerate(items):
        inner = scope.at(scope.input)
        inner.add_context({"Map": {"Item": {"Index": index, "Value": value}}})
        made.append(selector.run(inner))
    return made


class _Batches:
    """ItemBatcher: the items of several iterations as the input of one."""

    def __init__(self, fields: Fields) -> None:
        raw = fields.raw["ItemBatcher"]
        if not isinstance(raw, dict):
            fields.complain("ItemBatcher", f"expected an object, not {kind_of(raw)}")
            raw = {"MaxItemsPerBatch": 1}
        row = fields.inner(raw)
        for name in raw:
            if name not in BATCH_FIELDS:
                known = ", ".join(BATCH_FIELDS)
                fields.complain(f"ItemBatcher.{name}", f"this field does not belong here; there are {known}")
        self._items = row.value("MaxItemsPerBatch", is_seconds, "a positive integer")
        self._size = row.value("MaxInputBytesPerBatch", is_seconds, "a positive integer")
        self._common = row.template("BatchInput")
        if not any(name.startswith("Max") for name in raw):
            fields.complain("ItemBatcher", "MaxItemsPerBatch or MaxInputBytesPerBatch is missing")

    @property
    def queries(self) -> tuple[Query | None, ...]:
        return self._items, self._size, self._common

    def made(self, scope: Scope, inputs: list[Value]) -> list[Value]:
        count = self._items.run(scope) if self._items else MAX_ITEMS
        size = self._size.run(scope) if self._size else None
        common = {"BatchInput": self._common.run(scope)} if self._common else {}
        batches: list[list[Value]] = []
        held = 0
        for value in inputs:
            length = len(described_text(value)) if size is not None else 0
            if not batches or len(batches[-1]) >= count or (size is not None and held + length > size):
                batches.append([])
                held = 0
            batches[-1].append(value)
            held += length
        return [{**common, "Items": batch} for batch in batches]
