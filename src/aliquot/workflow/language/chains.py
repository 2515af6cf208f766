"""Chains: Task states in a row that may run in one sandbox, each on results of those before it.

A state is a link of a chain if nothing can happen between its task and the one before: it handles no errors, has no
time limits, and its arguments are the whole result before it, constants, variables, or parts of earlier results by name
or index. No other state may read the results between, because they need not leave the sandbox and need not be JSON.

The interpreter offers the chain of a state in its RunTask command. The shell runs as much of it as it can.
"""

import ast
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from aliquot.workflow.language.records import TASK, ChainLink, ChainPart
from aliquot.workflow.language.resources import read_resource
from aliquot.workflow.query.languages import CLOSE, JSONPATH, OPEN, PYTHON
from aliquot.workflow.values import Value

# The event loop looks for chains when a state is first entered, so the work is bounded.
MAX_LINKS = 20
MAX_STATES_WITH_CHAINS = 200  # of a machine in Python, whose variables have to be looked for in all states
MAX_TEXT_WITH_CHAINS = 100_000  # characters of such a machine
MAX_REFERENCE_CHARACTERS = 200
PLAIN_FIELDS = {
    JSONPATH: frozenset({"Type", "Comment", "QueryLanguage", "Resource", "Next", "End"}),
    PYTHON: frozenset({"Type", "Comment", "QueryLanguage", "Resource", "Next", "End", "Arguments", "Assign"}),
}
# The last link may also have these: they read its result, and not its input, which stayed in the sandbox.
LAST_FIELDS = {JSONPATH: frozenset({"ResultSelector", "OutputPath", "Assign"}), PYTHON: frozenset({"Output"})}
INPUT = "input"
WORD = re.compile(r"\w+")
WHOLE_RESULT = f"{OPEN} states.result {CLOSE}"


class Chains:
    """Finds the chains of one machine, given its states as they stand in the definition."""

    def __init__(self, raws: Mapping[str, Value], language: str) -> None:
        self._raws = raws
        self._language = language
        self._words: dict[str, frozenset[str]] | None = None

    def after(self, name: str) -> tuple[ChainLink, ...]:
        """Return the states that may follow a state in its sandbox, in order."""
        raw = self._raws[name]
        language = raw.get("QueryLanguage", self._language)
        if language not in PLAIN_FIELDS or not _is_task(raw) or raw.keys() - PLAIN_FIELDS[language]:
            return ()
        if language == PYTHON and len(self._raws) > MAX_STATES_WITH_CHAINS:
            return ()
        chain = _Chain(language, name, raw)
        links: list[ChainLink] = []
        while len(links) < MAX_LINKS and (following := chain.next) is not None and following not in chain.states:
            link = chain.link(following, self._raws[following])
            if link is None:
                break
            links.append(link)
        made = [link._replace(may_end=self._may_end(chain, count)) for count, link in enumerate(links, 1)]
        while made and not made[-1].may_end:
            made.pop()
        return tuple(made)

    def _may_end(self, chain: "_Chain", count: int) -> bool:
        """Return whether no state outside of a chain of so many links reads a result from inside.

        States of the chain are outside as well, if the machine can return to them from its end.
        """
        again_assigned = {chain.assigned[count]}  # by the last link, so that all may read it
        assigned = frozenset(filter(None, chain.assigned[:count])) - again_assigned
        if not assigned:
            return True
        first, *links = chain.states[: count + 1]
        again = self._reached(links[-1], first)
        if not again.isdisjoint(links):
            return False
        words = self._words_by_state()
        if not words:
            return False
        others = [name for name in words if name not in links and (name != first or first in again)]
        return all(assigned.isdisjoint(words[name]) for name in others)

    def _reached(self, source: str, last: str) -> set[str]:
        """Return the states that can follow a state. No way leads beyond `last`."""
        found: set[str] = set()
        ahead = [source]
        while ahead:
            for target in _targets(self._raws[ahead.pop()]):
                if target not in found:
                    found.add(target)
                    if target != last:
                        ahead.append(target)
        return found

    def _words_by_state(self) -> dict[str, frozenset[str]]:
        """Return the words in the text of each state, or none if there is too much text."""
        if self._words is None:
            texts = {name: _text(raw) for name, raw in self._raws.items()}
            short = sum(map(len, texts.values())) <= MAX_TEXT_WITH_CHAINS
            self._words = {name: frozenset(WORD.findall(text)) for name, text in texts.items()} if short else {}
        return self._words


def _targets(raw: Value) -> list[str]:
    rules = [raw, *raw.get("Choices", ()), *raw.get("Catch", ())]
    return [rule[key] for rule in rules for key in ("Next", "Default") if key in rule]


def _text(raw: Value) -> str:
    """Return the text of a state in which variables may be read."""
    plain = {**raw, "Assign": None, "Comment": None}
    return json.dumps([plain, list(raw.get("Assign", {}).values())], ensure_ascii=False)


def _is_task(raw: Value) -> bool:
    resource = read_resource(raw["Resource"]) if raw["Type"] == TASK else None
    return resource is not None and not resource.callback and not resource.wrapped


class _Chain:
    """A chain while it is followed: its states, and the variable that holds the result of each."""

    def __init__(self, language: str, name: str, raw: Value) -> None:
        self._language = language
        self.states = [name]
        self.assigned: list[str | None] = []
        self.next: str | None = None
        self._holders: dict[str, int] = {}  # variables, by the step whose result they have
        self._take(raw)

    def _take(self, raw: Value) -> None:
        """Go on behind a state, if its result is not changed."""
        assigned = raw.get("Assign", {})
        plain = all(value == WHOLE_RESULT for value in assigned.values()) and len(assigned) <= 1
        self.next = raw.get("Next") if plain else None
        self.assigned.append(next(iter(assigned), None))
        if self.assigned[-1] is not None:
            self._holders[self.assigned[-1]] = len(self.states) - 1

    def link(self, name: str, raw: Value) -> ChainLink | None:
        """Return a state as the next link, or None if it cannot be one."""
        language = raw.get("QueryLanguage", self._language)
        known = PLAIN_FIELDS[self._language] | LAST_FIELDS[self._language]
        if language != self._language or not _is_task(raw) or raw.keys() - known:
            return None
        arguments = None if language == JSONPATH else self._arguments(raw.get("Arguments"))
        if language == PYTHON and (arguments is None or INPUT in WORD.findall(_text({**raw, "Arguments": None}))):
            return None
        self.states.append(name)
        if raw.keys() <= PLAIN_FIELDS[language]:
            self._take(raw)
        else:  # it changes its result, so it is the last one
            self.assigned.append(None)
            self.next = None
        return ChainLink(name, raw["Resource"], arguments)

    def _arguments(self, raw: Value) -> dict[str, ChainPart] | None:
        if not isinstance(raw, dict):
            return None
        made: dict[str, ChainPart] = {}
        for name, value in raw.items():
            part = self._part(value)
            if part is None:
                return None
            made[name] = part
        return made

    def _part(self, value: Value) -> ChainPart | None:
        if not isinstance(value, str) and OPEN not in json.dumps(value):
            return ChainPart(value=value)
        if isinstance(value, str) and not value.startswith(OPEN):
            return ChainPart(value=value)
        short = isinstance(value, str) and len(value) <= MAX_REFERENCE_CHARACTERS
        found = _reference(value) if short else None
        if found is None:
            return None
        return ChainPart(variable=found.name, step=self._holders.get(found.name), path=found.path)


class _Reference(NamedTuple):
    name: str
    path: tuple[str | int, ...]


def _reference(text: str) -> _Reference | None:
    """Return the variable and the path that an expression names, or None if it is more than that."""
    try:
        node = ast.parse(text[len(OPEN) : -len(CLOSE)].strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    path: list[str | int] = []
    while isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if type(key) is not str and type(key) is not int:
            return None
        path.insert(0, key)
        node = node.value
    return _Reference(node.id, tuple(path)) if isinstance(node, ast.Name) else None
