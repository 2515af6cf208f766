"""Scopes for the tests of query languages."""

from aliquot.workflow.chance import Chance
from aliquot.workflow.query.scope import Scope, Work

NOW = 1_700_000_000.0


def scope(value=None, variables=None, *, max_steps=None, **states):
    context = {"Execution": {"Id": "run-1", "Input": value}}
    return Scope(
        value,
        variables or {},
        lambda: context,
        Chance("test"),
        now=NOW,
        states={"input": value, **states},
        work=Work(max_steps),
    )
