"""Readers for the two main files of a simulation: a stream of arrivals, and the functions that they call."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path

from aliquot.config import MAX_WEIGHT, MIN_WEIGHT
from aliquot.core.admission.records import Late
from aliquot.core.errors import InputError
from aliquot.core.fit import misfit
from aliquot.core.model import DEFAULT_TENANT, MAX_BATCH, DeviceSpec, FunctionSpec, Times
from aliquot.core.prefetching.records import FileKey
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival, WorkloadOverview, make_overview
from aliquot.sim.fabric.storage import file_key
from aliquot.sim.input_files import CsvRow, read_rows

SEPARATOR = ";"  # between files, and between datasets
_SHARE = "a part of a device, 0 (none) to 1, or a whole number of devices"
_SECONDS = "seconds, 0 or more"


class TraceFile:
    """An arrivals file: `time_s,function`, optionally `tenant,run_s,deadline_s,cost_limit,session,reads,late`."""

    required = ("time_s", "function")
    optional = ("tenant", "run_s", "deadline_s", "cost_limit", "session", "reads", "late", "key")

    def __init__(
        self,
        path: Path,
        functions: Mapping[str, FunctionSpec],
        files: Container[FileKey] = frozenset(),
        graphs: Collection[str] = (),
    ) -> None:
        self.path = path
        self._functions = functions
        self._files = files
        self._graphs = graphs

    def overview(self) -> WorkloadOverview:
        """Read the whole file once, so that every error in it is reported before the simulation."""
        return make_overview(self)

    def __iter__(self) -> Iterator[Arrival]:
        latest: float = 0
        for row in read_rows(self.path, self.required, self.optional):
            time_s = row.number("time_s", "seconds since the start, 0 or more")
            if time_s < latest:
                raise row.error(f"time_s is {time_s} after {latest} before it; it takes ascending times")
            latest = time_s
            function = row.text("function")
            if function not in self._functions:
                self._check_graph(row, function)
            yield Arrival(
                time_s,
                function,
                row.values.get("tenant", "").strip() or DEFAULT_TENANT,
                row.optional("run_s", _SECONDS),
                row.optional("deadline_s", "seconds after arrival, more than 0", above=0),
                row.optional("cost_limit", "a cost, 0 or more"),
                row.values.get("session", "").strip() or None,
                self._reads(row, function),
                _late(row),
                row.values.get("key", "").strip() or None,
            )

    def _check_graph(self, row: CsvRow, name: str) -> None:
        """Refuse a name that is not of a graph, and what an execution of a graph cannot have."""
        if name not in self._graphs:
            also = " or a graph" if self._graphs else ""
            raise row.error(f"function '{name}' is not known; it takes one of the functions file's names{also}")
        for column in ("run_s", "session", "reads", "key"):
            if row.values.get(column, "").strip():
                raise row.error(f"{column} is '{row.values[column]}'; the graph {name} takes none")

    def _reads(self, row: CsvRow, function: str) -> tuple[str, ...]:
        text = row.values.get("reads", "").strip()
        if not text:
            return ()
        names = tuple(text.split(SEPARATOR))
        datasets = self._functions[function].datasets
        for name in names:
            key = file_key(name)
            if key not in self._files:
                raise row.error(
                    f"reads: '{name}' is not in the files file; it takes DATASET/PATH{SEPARATOR}DATASET/PATH"
                )
            if key[0] not in datasets:
                raise row.error(
                    f"reads: '{name}' is of no dataset that {function} declares: {', '.join(datasets) or '-'}"
                )
        return names


def _late(row: CsvRow) -> Late:
    text = row.values.get("late", "").strip()
    known = {"": Late.RUN, **{str(each): each for each in Late}}
    if text not in known:
        raise row.error(f"late is '{text}'; it takes {' or '.join(Late)}")
    return known[text]


class FunctionsFile:
    """A functions file: `name,run_s,cold_s,memory_mib`, and optional columns.

    These are `load_s,share,weight,datasets,host_mib,run_mib,one_per_device,batch,run_s@KIND,run_s@KIND/SIZE`.
    """

    required = ("name", "run_s", "cold_s", "memory_mib")
    optional = ("load_s", "share", "weight", "datasets", "host_mib", "run_mib", "one_per_device", "batch")
    by_kind = ("run_s@", "cold_s@", "load_s@")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.functions: dict[str, FunctionSpec] = {}
        self._rows: dict[str, CsvRow] = {}
        for row in read_rows(path, self.required, self.optional, self.by_kind):
            if not self.functions:
                _check_sizes(row)
            function = _function(row)
            if function.name in self.functions:
                raise row.error(f"function '{function.name}' is listed twice")
            self.functions[function.name] = function
            self._rows[function.name] = row
        if not self.functions:
            raise InputError(f"{path}:2: there are no functions; it takes one a line")

    def check_fit(self, devices: Sequence[DeviceSpec]) -> None:
        """Refuse a function that fits on no device."""
        for name, function in self.functions.items():
            reason = misfit(function, devices)
            if reason is not None:
                raise self._rows[name].error(f"function '{name}' fits no device: {reason}")


def _function(row: CsvRow) -> FunctionSpec:
    name = row.text("name")
    run_s = row.number("run_s", _SECONDS)
    cold_s = row.number("cold_s", _SECONDS)
    load_s = row.optional("load_s", _SECONDS)  # None: computed from the device's bandwidth, or 0
    weight = row.optional("weight", f"a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", max_value=MAX_WEIGHT)
    if weight is not None and weight < MIN_WEIGHT:
        raise row.error(f"weight is {weight}; it takes a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}")
    share = row.optional("share", _SHARE)
    if share is not None and share > 1 and share != int(share):
        raise row.error(f"share is {share}; it takes {_SHARE}")
    return FunctionSpec(
        name,
        memory_bytes=round(row.number("memory_mib", "MiB, 0 or more") * MIB),
        share=share,
        times=Times(run_s, cold_s, load_s),
        times_by_kind=_times_by_kind(row, Times(run_s, cold_s, load_s)),
        weight=1 if weight is None else weight,
        host_bytes=round((row.optional("host_mib", "MiB, 0 or more") or 0) * MIB),
        datasets=tuple(filter(None, row.values.get("datasets", "").strip().split(SEPARATOR))),
        batch=_batch_size(row),
        run_bytes=round((row.optional("run_mib", "MiB, 0 or more") or 0) * MIB),
        one_per_device=_one_per_device(row),
    )


def _one_per_device(row: CsvRow) -> bool:
    text = row.values.get("one_per_device", "").strip() or "0"
    if text not in ("0", "1"):
        raise row.error(f"one_per_device is '{text}'; it takes 0 or 1")
    return text == "1"


def _check_sizes(row: CsvRow) -> None:
    """Refuse a column `run_s@KIND/SIZE` whose size is not that of a batch."""
    for column in row.values:
        _, slash, size = column.partition("/")
        if slash and not (column.startswith("run_s@") and size.isdecimal() and 1 < int(size) <= MAX_BATCH):
            raise row.error(f"the column '{column}' is not known; it takes run_s@KIND/SIZE, SIZE from 2 to {MAX_BATCH}")


def _batch_size(row: CsvRow) -> int:
    takes = f"a whole number of calls, 1 to {MAX_BATCH}"
    size = row.optional("batch", takes, above=0, max_value=MAX_BATCH)
    if size is not None and size != int(size):
        raise row.error(f"batch is {size}; it takes {takes}")
    return 1 if size is None else int(size)


def _batch_times(row: CsvRow, kind: str, run_s: float) -> dict[int, float]:
    """Parse the run times of batches on a kind of device, on which one call takes `run_s`."""
    times = {}
    for column in row.values:
        named, slash, size = column.removeprefix("run_s@").partition("/")
        if column.startswith("run_s@") and slash and named == kind:
            known_s = row.optional(column, _SECONDS)
            if known_s is not None and known_s < run_s:
                raise row.error(f"{column} is {known_s}; it takes {run_s:g} or more, the time of one call")
            if known_s is not None:
                times[int(size)] = known_s
    return times


def _times_by_kind(row: CsvRow, general: Times) -> dict[str, Times]:
    """Parse the times on other kinds of devices. A missing time on a kind has the general value."""
    kinds = {column.partition("@")[2].partition("/")[0]: None for column in row.values if "@" in column}
    by_kind = {}
    for kind in kinds:
        run_there = row.optional(f"run_s@{kind}", _SECONDS)
        cold_there = row.optional(f"cold_s@{kind}", _SECONDS)
        load_there = row.optional(f"load_s@{kind}", _SECONDS)
        batches = _batch_times(row, kind, (general.run_s or 0) if run_there is None else run_there)
        if run_there is None and not batches and (cold_there is not None or load_there is not None):
            raise row.error(f"run_s@{kind} is missing; it is required with other times on that kind")
        if run_there is not None or batches:
            by_kind[kind] = Times(
                general.run_s if run_there is None else run_there,
                general.cold_s if cold_there is None else cold_there,
                general.load_s if load_there is None else load_there,
                batches,
            )
    return by_kind
