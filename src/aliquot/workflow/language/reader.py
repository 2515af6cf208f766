"""Read a definition: check every field, compile every query, and tell all mistakes at once."""

import re
from collections.abc import Mapping
from dataclasses import replace

from aliquot.workflow.language.fields import (
    EXCLUSIVE,
    MACHINE_FIELDS,
    PROCESSOR_FIELDS,
    REFUSED_FIELDS,
    REQUIRED,
    ROOT_FIELDS,
    STATE_FIELDS,
)
from aliquot.workflow.language.flow import FlowCheck
from aliquot.workflow.language.kinds import make_state
from aliquot.workflow.language.records import (
    CHOICE,
    FAIL,
    MAX_NESTED_MACHINES,
    MAX_STATES,
    SUCCEED,
    Complaint,
    Machine,
    State,
)
from aliquot.workflow.language.sources import Fields, is_seconds
from aliquot.workflow.query.languages import JSONPATH, LANGUAGES
from aliquot.workflow.values import Value, kind_of

MAX_NAME_CHARACTERS = 80
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
KINDS = tuple(dict.fromkeys(kind for field in STATE_FIELDS.values() for kind in field.kinds))


def read_definition(definition: Value) -> tuple[Machine | None, tuple[Complaint, ...]]:
    """Return the machine of a definition, or None if it has mistakes, and all complaints about it."""
    reader = Reader()
    machine = reader.machine(definition, "", ROOT_FIELDS, JSONPATH, frozenset())
    wrong = any(not complaint.warning for complaint in reader.complaints)
    return (None if wrong else machine), tuple(dict.fromkeys(reader.complaints))


class Reader:
    """The reading of one definition. Machines in Parallel and Map states are read after the one around them."""

    def __init__(self) -> None:
        self.complaints: list[Complaint] = []
        self._names: dict[str, None] = {}
        self._depth = 0

    def complain(self, state: str, field: str, reason: str) -> None:
        self.complaints.append(Complaint(state, field, reason))

    def machine(
        self, raw: Value, place: str, known: tuple[str, ...], language: str, outer: frozenset[str], owner: str = ""
    ) -> Machine:
        """Read a machine. `outer` has the variables of the machines around it."""
        empty = Machine(start="", states={})
        prefix = f"{place}." if place else ""
        if not isinstance(raw, Mapping):
            self.complain(
                owner, place or "definition", f"expected an object with StartAt and States, not {kind_of(raw)}"
            )
            return empty
        for name in raw:
            if name not in known:
                self.complain(
                    owner, f"{prefix}{name}", f"this field does not belong here; there are {', '.join(known)}"
                )
        language = self._language(raw, owner, prefix, language)
        states = raw.get("States")
        start = raw.get("StartAt")
        if not isinstance(start, str):
            self.complain(owner, f"{prefix}StartAt", "expected the name of the first state")
        if "Version" in raw and raw["Version"] != "1.0":
            self.complain(owner, "Version", f"expected '1.0', not {raw['Version']!r}")
        self._text(raw, owner, f"{prefix}Comment")
        timeout = raw.get("TimeoutSeconds")
        if "TimeoutSeconds" in raw and not is_seconds(timeout):
            self.complain(owner, "TimeoutSeconds", f"expected a positive integer, not {timeout!r}")
        if not isinstance(states, Mapping) or not states:
            self.complain(
                owner, f"{prefix}States", "expected an object with a state for each name, which must not be empty"
            )
            return empty
        if isinstance(start, str) and start not in states:
            self.complain(owner, f"{prefix}StartAt", f"there is no state {start!r}; there are {', '.join(states)}")
        self._depth += 1
        made = self._states(states, str(start), language, outer) if self._depth <= MAX_NESTED_MACHINES else {}
        if self._depth > MAX_NESTED_MACHINES:
            self.complain(owner, place, f"machines are nested more than {MAX_NESTED_MACHINES} deep")
        self._depth -= 1
        return Machine(start=str(start), states=made, timeout_s=timeout, comment=str(raw.get("Comment", "")))

    def _language(self, raw: Mapping[str, Value], owner: str, prefix: str, outer: str) -> str:
        language = raw.get("QueryLanguage", outer)
        if language not in LANGUAGES:
            self.complain(owner, f"{prefix}QueryLanguage", f"expected one of {', '.join(LANGUAGES)}, not {language!r}")
            return outer
        if language == JSONPATH != outer:
            self.complain(owner, f"{prefix}QueryLanguage", f"a part of a machine in {outer} cannot be in JSONPath")
            return outer
        return str(language)

    def _text(self, raw: Mapping[str, Value], owner: str, field: str) -> None:
        value = raw.get(field.rsplit(".", 1)[-1], "")
        if not isinstance(value, str):
            self.complain(owner, field, f"expected a string, not {kind_of(value)}")

    def _states(self, raws: Mapping[str, Value], start: str, language: str, outer: frozenset[str]) -> dict[str, State]:
        found: dict[str, Fields] = {}
        for name, raw in raws.items():
            if not isinstance(raw, Mapping):
                self.complain(name, "state", f"expected an object, not {kind_of(raw)}")
                continue
            self._name(name)
            fields = Fields(name, self._language(raw, name, "", language), raw, self.complaints)
            if self._fields(fields):
                found[name] = fields
        made = {name: make_state(fields) for name, fields in found.items()}
        flow = FlowCheck(start, made, {name: fields.raw for name, fields in found.items()}, outer, self.complaints)
        for name, fields in found.items():
            visible = flow.visible.get(name, outer)
            self._variables(fields, visible if name in flow.visible else None)
            made[name] = self._with_machines(made[name], fields, visible)
        return made

    def _name(self, name: str) -> None:
        if not name or len(name) > MAX_NAME_CHARACTERS:
            self.complain(name, "name", f"the name of a state has 1 to {MAX_NAME_CHARACTERS} characters")
        if name in self._names:
            self.complain(name, "name", "another state of this definition has the same name")
        self._names[name] = None
        if len(self._names) == MAX_STATES + 1:
            self.complain(name, "States", f"a definition has at most {MAX_STATES} states")

    def _fields(self, fields: Fields) -> bool:
        """Check which fields a state has. Returns whether its type is known."""
        kind = fields.raw.get("Type")
        if kind not in KINDS:
            fields.complain("Type", f"expected one of {', '.join(KINDS)}, not {kind!r}")
            return False
        self._text(fields.raw, fields.state, "Comment")
        for name in fields.raw:
            if name in REFUSED_FIELDS:
                fields.complain(name, f"not supported: {REFUSED_FIELDS[name]}")
            elif name not in STATE_FIELDS or kind not in STATE_FIELDS[name].kinds_in(fields.language):
                kinds = STATE_FIELDS[name].kinds_in(fields.language) if name in STATE_FIELDS else ()
                where = f"; it belongs to {', '.join(kinds)}" if kinds else ""
                fields.complain(name, f"a {kind} state has no such field{where}")
            elif fields.language not in STATE_FIELDS[name].languages:
                languages = " and ".join(STATE_FIELDS[name].languages)
                fields.complain(name, f"this field belongs to {languages}, and the state is in {fields.language}")
        for group in EXCLUSIVE.get(kind, ()):
            both = [name for name in group if name in fields.raw]
            if len(both) > 1:
                fields.complain(both[1], f"cannot stand beside {both[0]}")
        for group in REQUIRED.get(kind, ()):
            if not any(name in fields.raw for name in group):
                fields.complain(group[0], f"a {kind} state needs {' or '.join(group)}")
        self._transition(fields, str(kind))
        return True

    def _transition(self, fields: Fields, kind: str) -> None:
        if kind in {CHOICE, SUCCEED, FAIL}:
            return
        end = fields.raw.get("End", False)
        if not isinstance(end, bool):
            fields.complain("End", f"expected true, not {kind_of(end)}")
        elif ("Next" in fields.raw) == ("End" in fields.raw) or end is not ("End" in fields.raw):
            fields.complain("Next", "expected either Next, the name of a state, or End, which is true")
        elif "Next" in fields.raw and (not isinstance(fields.raw["Next"], str) or not fields.raw["Next"]):
            fields.complain("Next", f"expected the name of a state, not {kind_of(fields.raw['Next'])}")

    def _variables(self, fields: Fields, visible: frozenset[str] | None) -> None:
        """Check the names that are assigned, and, in a reachable state, those that are read."""
        rows = [fields.raw, *(row for name in ("Choices", "Catch") for row in _rows(fields.raw, name))]
        for row in rows:
            assigned = row.get("Assign")
            for name in assigned if isinstance(assigned, dict) else ():
                plain = name.removesuffix(".$")
                if not VARIABLE.fullmatch(plain) or plain == "states":
                    fields.complain(
                        "Assign", f"{plain!r} is no name of a variable: letters, digits and _, but not 'states'"
                    )
        if visible is not None:
            for field, name in fields.reads:
                if name not in visible:
                    known = f"; there are {', '.join(sorted(visible))}" if visible else ""
                    fields.complain(field, f"no state before this one assigns the variable {name!r}{known}")

    def _with_machines(self, state: State, fields: Fields, visible: frozenset[str]) -> State:
        """Read the machines inside a Parallel or Map state."""
        inner: list[tuple[str, Value, tuple[str, ...]]] = []
        branches = fields.raw.get("Branches")
        if "Branches" in fields.raw:
            if not isinstance(branches, list) or not branches:
                fields.complain("Branches", "expected a list of machines, which must not be empty")
            else:
                inner = [(f"Branches[{number}]", raw, MACHINE_FIELDS) for number, raw in enumerate(branches)]
        for name in ("ItemProcessor", "Iterator"):
            if name in fields.raw:
                inner.append((name, fields.raw[name], PROCESSOR_FIELDS if name == "ItemProcessor" else MACHINE_FIELDS))
                self._processor(fields, name)
        machines = [
            self.machine(raw, place, known, fields.language, visible, fields.state) for place, raw, known in inner
        ]
        return state if not machines else replace(state, branches=tuple(machines))

    def _processor(self, fields: Fields, name: str) -> None:
        raw = fields.raw[name]
        config = raw.get("ProcessorConfig", {}) if isinstance(raw, dict) else {}
        mode = config.get("Mode", "INLINE") if isinstance(config, dict) else config
        if mode == "DISTRIBUTED":
            fields.complain(
                f"{name}.ProcessorConfig.Mode", "not supported: DISTRIBUTED. INLINE has no limit of 40 at once"
            )
        elif mode != "INLINE":
            fields.complain(f"{name}.ProcessorConfig.Mode", f"expected INLINE, not {mode!r}")


def _rows(raw: Mapping[str, Value], name: str) -> list[Mapping[str, Value]]:
    rows = raw.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
