"""Write a definition: name the states after their functions and statements, and refuse ways without an end."""

import ast
import re
from typing import Any

from aliquot.sdk.workflow.mistakes import RefusedConstruct
from aliquot.sdk.workflow.steps import CHOICE, FAIL, MAP, PARALLEL, SUCCEED, Assigned, Step, Transition

MAX_NAME_CHARACTERS = 70  # the language takes 80, and a number may follow
Json = dict[str, Any]


def template(expression: ast.expr) -> Any:  # noqa: ANN401 - a JSON value
    """Return a constant as it is, and any other expression as text in `{% %}`."""
    if isinstance(expression, ast.Constant) and not (
        isinstance(expression.value, str) and expression.value.startswith("{%")
    ):
        return expression.value
    try:
        return "{% " + ast.unparse(ast.fix_missing_locations(expression)) + " %}"
    except ValueError as error:
        raise RefusedConstruct(expression, "assign the parts of this f-string to names first") from error


def definition(start: Step, file: str, comment: str, timeout_s: int | None) -> Json:
    """Return the definition of the machine that begins with a step."""
    writer = _Writer(start, file)
    head: Json = {"Comment": comment} if comment else {}
    head |= {"TimeoutSeconds": timeout_s} if timeout_s is not None else {}
    return {**head, "QueryLanguage": "Python", **writer.machine(start)}


def reachable(start: Step) -> list[Step]:
    """Return the states of a machine in the order of the source, and in a line as they follow each other."""
    found: dict[Step, None] = {}
    work = [start.settled()]
    while work:
        step = work.pop()
        if step not in found:
            found[step] = None
            work += reversed(step.targets())
    return sorted(found, key=lambda step: step.line)


class _Writer:
    def __init__(self, start: Step, file: str) -> None:
        self._file = file
        self._names: dict[Step, str] = {}
        self._used: dict[str, int] = {}
        self._name(start)

    def _name(self, start: Step) -> None:
        """Name all states: two states of a definition never have the same name."""
        steps = reachable(start)
        _check_ends(steps)
        for step in steps:
            title = re.sub(r"\s+", " ", step.title)[:MAX_NAME_CHARACTERS] or step.kind
            number = self._used[title] = self._used.get(title, 0) + 1
            name = title if number == 1 else f"{title} ({number})"
            self._used.setdefault(name, 1)
            self._names[step] = name
            for machine in step.machines:
                self._name(machine)

    def machine(self, start: Step) -> Json:
        states = {self._names[step]: self._state(step) for step in reachable(start)}
        return {"StartAt": self._names[start.settled()], "States": states}

    def _state(self, step: Step) -> Json:
        made: Json = {"Type": step.kind, "Comment": f"{self._file}:{step.line}", **step.fields}
        if step.kind == CHOICE:
            made["Choices"] = [
                {"Condition": template(rule.when), **self._assign(rule.assign), **self._next(rule)}
                for rule in step.rules
            ]
            if step.next is not None:
                made["Default"] = self._names[step.next.settled()]
        else:
            made |= self._assign(step.assign)
        if step.output is not None:
            made["Output"] = template(step.output)
        if step.catch:
            made["Catch"] = [
                {"ErrorEquals": list(rule.when), **self._assign(rule.assign), **self._next(rule)} for rule in step.catch
            ]
        machines = [self.machine(start) for start in step.machines]
        if step.kind == PARALLEL:
            made["Branches"] = machines
        elif step.kind == MAP:
            made["ItemProcessor"] = machines[0]
        if step.kind not in {CHOICE, FAIL, SUCCEED}:
            made |= {"End": True} if step.next is None else {"Next": self._names[step.next.settled()]}
        return made

    def _next(self, rule: Transition) -> Json:
        return {"Next": self._names[rule.target.settled()]}

    def _assign(self, assigned: Assigned) -> Json:
        return {"Assign": {name: template(value) for name, value in assigned.items()}} if assigned else {}


def _check_ends(steps: list[Step]) -> None:
    """Refuse loops that nothing leaves."""
    ending = {step: None for step in steps if step.ends and step.kind}
    grown = True
    while grown:
        more = [step for step in steps if step not in ending and any(target in ending for target in step.targets())]
        ending.update(dict.fromkeys(more))
        grown = bool(more)
    for step in steps:
        if step not in ending:
            place = ast.Pass(lineno=step.line, col_offset=step.column)
            raise RefusedConstruct(place, "this loop never ends; leave it by break, return or a condition")
