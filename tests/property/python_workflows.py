"""Random workflows in Python, as source: numbers a, b and c, lists xs and ys, calls that fail, loops and handlers."""

from hypothesis import strategies as st

HEAD = """
import aliquot

app = aliquot.App("generated")
LIMIT = 4


class Late(Exception):
    pass


class Later(Late):
    pass


@app.function
def inc(x):
    return x + 1


@app.function
def half(x):
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


@app.function
def pick(values, at):
    return values[at]


@app.function
def late(x, by=1):
    if x > 5:
        raise Later(f"{x} late") if x > 8 else Late("late")
    return x - by


@app.function
def pair(x, y):
    return [x, y]


@app.workflow
def inner(x, step=2):
    return inc(x) + step


@app.workflow
def flow(n, xs):
    a = n
    b = 2
    c = 0
    ys = []
    said = ""
    total = 0
"""
NUMBERS = st.integers(-2, 5).map(str)
VARIABLES = st.sampled_from(["a", "b", "c"])
SIMPLE = st.one_of(NUMBERS, VARIABLES)
HANDLED = st.sampled_from(
    ["ValueError", "ZeroDivisionError", "(IndexError, Late)", "Later", "Exception", "LookupError", "ArithmeticError"]
)


@st.composite
def numbers(draw, depth=2):
    """Return an expression without calls of functions, whose value is a small number."""
    if depth == 0:
        return draw(SIMPLE)
    left, right = draw(numbers(depth - 1)), draw(numbers(depth - 1))
    forms = [
        *(left, left, f"({left} + {right})", f"({left} - {right})", f"({left} * {right} % 101)"),
        *(f"({left} // {right})", f"({left} % {right})", "len(ys)", f"max({left}, {right})", "xs[0]", f"xs[{right}]"),
        *(f"({left} if {right} else {right})", f"({left} and {right})", "LIMIT", f"sum([{left}, {right}])"),
        f"abs({left})",
    ]
    return draw(st.sampled_from(forms))


@st.composite
def tests(draw):
    left, right = draw(numbers(1)), draw(numbers(1))
    forms = [
        *(
            f"{left} < {right}",
            f"{left} == {right}",
            f"not {left}",
            f"{left}",
            f"{left} < {right} <= 3",
            f"{left} in xs",
        ),
        *("ys", f"inc({left}) > {right}", f"{left} and inc({right})", f"half({left}) or {right} > 1"),
    ]
    return draw(st.sampled_from(forms))


@st.composite
def calls(draw):
    """Return an expression that calls functions, and gives a number."""
    left, right = draw(numbers(1)), draw(numbers(1))
    forms = [
        *(f"inc({left})", f"half({left})", f"late({left}, by={right})", f"pick(xs, {left})", f"inc(inc({left}))"),
        *(f"inc({left}) + half({right})", f"{left} // {right} + inc({left})", f"inc({left}) if {right} else {left}"),
        *(f"{left} and half({right})", f"{left} or inc({right})", f"pair({left}, inc({right}))[1]", f"inner({left})"),
        *(f"sum([inc(x) for x in xs if x != {left}])", f"max(late(x) for x in [{left}, {right}])"),
        *(f"pick([late(x, y) for x in xs for y in [{left}, x]], {right})", f"sum(inc.map([{left}, {right}]))"),
        *(f"half.options(retry=aliquot.Retry(2, on=ValueError), timeout='9s')({left})", f"-inc({left})"),
        *(f"pick(aliquot.parallel(half({left}), {right}, inc(late({right}))), 0)", f"inner(x={left}, step={right})"),
        *(
            f"{{'k': inc({left}), 'l': {right}}}['k']",
            "len({str(x): half(x) for x in xs})",
            f"[inc({left})][{right}]",
        ),
        *(f"int(f'{{inc({left})}}')", f"sum([[inc(x), late(x)][0] for x in [{left}, {right}]])"),
        f"aliquot.wait_for(late, {left}, timeout='1h')",
    ]
    return draw(st.sampled_from(forms))


def indented(lines):
    return [f"    {line}" for line in lines]


@st.composite
def blocks(draw, depth, loop):
    size = draw(st.integers(1, 3))
    return [line for _ in range(size) for line in draw(statements(depth, loop))]


def plain(draw, loop):
    name, number, call = draw(VARIABLES), draw(numbers()), draw(calls())
    forms = [
        *(
            [f"{name} = {number}"],
            [f"{name} = {call}"],
            [f"{name} = {call}"],
            [f"{name} -= {number}"],
            [f"{name} += 1"],
            [f"{name} += len(ys)"],
            [f"total += {number}"],
        ),
        *([f"ys.append({number})"], [f"ys.append({call})"], ["ys = [inc(x) for x in xs]"], ["aliquot.sleep(3)"]),
        *([f"a, b = aliquot.parallel(inc({name}), {call})"], [f"b, c = pair({number}, {name})"], [f"c = b = {call}"]),
        *([f"inc({name})"], ["pass"], [f"assert {number} != 3, 'three'"], [f"ys.extend([{name}, 1])"]),
        *([f"if {number} > 3:", f"    raise Later('a' + str({name}))"], [f"return {call}"], ["c, b = xs"]),
        *(
            [f"if {name} == 2:", "    return [a, b, ys, said]"],
            [f"d = {{'n': {number}}}", f"d['m'] = {call}", "c = d['m']"],
        ),
    ]
    if loop:
        forms += [[f"if {draw(tests())}:", f"    {word}"] for word in ("break", "continue")]
    return draw(st.sampled_from(forms))


@st.composite
def statements(draw, depth, loop):
    """Return the lines of a statement."""
    kind = draw(st.sampled_from(["plain"] * 3 + (["if", "for", "while", "try"] if depth else [])))
    if kind == "plain":
        return plain(draw, loop)
    body = indented(draw(blocks(depth - 1, loop or kind in {"for", "while"})))
    other = indented(draw(blocks(depth - 1, loop)))
    if kind == "if":
        middle = [f"elif {draw(tests())}:", *indented(draw(blocks(0, loop)))] if draw(st.booleans()) else []
        rest = ["else:", *other] if draw(st.booleans()) else []
        return [f"if {draw(tests())}:", *body, *middle, *rest]
    if kind == "for":
        target = draw(st.sampled_from(["c in xs", "_ in range(3)", "a, b in [[1, 2], [a, c]]", "a in [inc(b), c]"]))
        rest = ["else:", *other] if draw(st.booleans()) else []
        return [f"for {target}:", *body, *rest]
    if kind == "while":
        counter = f"k{draw(st.integers(0, 10**6))}"
        return [f"{counter} = 0", f"while {counter} < 2 and {draw(tests())}:", f"    {counter} += 1", *body]
    return _try(draw, body, other, loop)


def _try(draw, body, other, loop):
    last = draw(
        st.sampled_from([["said = type(problem).__name__"], ["raise"], ["raise problem"], other, ["said = 'x'"]])
    )
    handlers = [
        f"except {draw(HANDLED)} as problem:",
        *indented([line.strip() for line in last] if len(last) == 1 else []),
    ]
    if len(last) > 1 or not handlers[1:]:
        handlers = [handlers[0], *last]
    if draw(st.booleans()):
        handlers += [f"except {draw(HANDLED)}:", *indented(draw(blocks(0, loop)))]
    rest = ["else:", *indented(draw(blocks(0, loop)))] if draw(st.booleans()) else []
    return ["try:", *body, *handlers, *rest]


@st.composite
def workflows(draw):
    """Return the source of a module with a workflow `flow(n, xs)`."""
    lines = draw(blocks(2, loop=False)) + draw(blocks(2, loop=False))
    return HEAD + "\n".join([*indented(lines), "    return [a, b, c, xs, ys, said, total]"]) + "\n"
