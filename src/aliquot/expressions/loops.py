"""Compilers of calls and comprehensions."""

import ast
from collections.abc import Iterator

from aliquot.expressions.budget import EvaluationError, Value, measure
from aliquot.expressions.closures import Closure, Compiler, Evaluation, describe, refusal, text_key
from aliquot.expressions.functions import FUNCTIONS, METHOD_NAMES, METHODS


def call_of(compiler: Compiler, node: ast.Call) -> Closure:
    if any(isinstance(argument, ast.Starred) for argument in node.args) or any(
        word.arg is None for word in node.keywords
    ):
        raise refusal(node, "arguments with * or ** are not allowed")
    arguments = compiler.nodes(node.args)
    named = [(word.arg, compiler.node(word.value)) for word in node.keywords if word.arg is not None]
    target = node.func
    if isinstance(target, ast.Name) and target.id in FUNCTIONS and target.id not in compiler.bound:
        function = FUNCTIONS[target.id]

        def call(evaluation: Evaluation) -> Value:
            evaluation.budget.spend(1)
            words = {name: value(evaluation) for name, value in named}
            return function(evaluation.budget, *[argument(evaluation) for argument in arguments], **words)

        return call
    if not isinstance(target, ast.Attribute) or target.attr not in METHOD_NAMES:
        known = f"functions: {', '.join(FUNCTIONS)}; methods: {', '.join(sorted(METHOD_NAMES))}"
        raise refusal(node, f"{describe(target)} cannot be called here. Allowed {known}")
    receiver, method = compiler.node(target.value), target.attr

    def call_method(evaluation: Evaluation) -> Value:
        evaluation.budget.spend(1)
        found = receiver(evaluation)
        run = METHODS.get(type(found), {}).get(method)
        if run is None:
            raise EvaluationError(f"a {type(found).__name__} has no method {method}", "AttributeError")
        words = {name: value(evaluation) for name, value in named}
        return run(evaluation.budget, found, *[argument(evaluation) for argument in arguments], **words)

    return call_method


def _targets(node: ast.expr) -> list[str]:
    names = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    found = [name.id for name in names if isinstance(name, ast.Name)]
    if len(found) != len(names):
        raise refusal(node, f"{describe(node)}: a comprehension binds names, or a tuple of names")
    return found


Generator = tuple[list[str], bool, Closure, list[Closure]]


def _loops(compiler: Compiler, generators: list[ast.comprehension]) -> list[Generator]:
    made = []
    for generator in generators:
        if generator.is_async:
            raise refusal(generator.target, "async comprehensions are not allowed")
        values = compiler.node(generator.iter)
        names = _targets(generator.target)
        compiler.bound.extend(names)
        made.append((names, isinstance(generator.target, ast.Name), values, compiler.nodes(generator.ifs)))
    return made


def _each(evaluation: Evaluation, loops: list[Generator]) -> Iterator[Evaluation]:
    """Yield an evaluation with the names of each turn of nested loops."""
    names, single, values, tests = loops[0]
    budget = evaluation.budget
    for value in FUNCTIONS["list"](budget, values(evaluation)):
        budget.spend(1)
        if single:
            bound = {names[0]: value}
        else:
            parts = FUNCTIONS["list"](budget, value)
            if len(parts) != len(names):
                raise EvaluationError(f"cannot unpack {value!r:.60} into {len(names)} names")
            bound = dict(zip(names, parts, strict=True))
        turn = Evaluation({**evaluation.names, **bound}, budget)
        if all(test(turn) for test in tests):
            if len(loops) == 1:
                yield turn
            else:
                yield from _each(turn, loops[1:])


def comprehension(compiler: Compiler, node: ast.ListComp | ast.GeneratorExp) -> Closure:
    before = len(compiler.bound)
    loops = _loops(compiler, node.generators)
    part = compiler.node(node.elt)
    del compiler.bound[before:]

    def run(evaluation: Evaluation) -> list[Value]:
        made = []
        for turn in _each(evaluation, loops):
            value = part(turn)
            evaluation.budget.spend(measure(value) >> 4)
            made.append(value)
        return made

    return run


def dict_comprehension(compiler: Compiler, node: ast.DictComp) -> Closure:
    before = len(compiler.bound)
    loops = _loops(compiler, node.generators)
    key, value = compiler.node(node.key), compiler.node(node.value)
    del compiler.bound[before:]

    def run(evaluation: Evaluation) -> dict[str, Value]:
        made = {}
        for turn in _each(evaluation, loops):
            found = value(turn)
            evaluation.budget.spend(measure(found) >> 4)
            made[text_key(key(turn))] = found
        return made

    return run
