"""An app with workflows, for tests of the SDK and of the command line on a real platform."""

import aliquot
from aliquot import Retry

app = aliquot.App("orders")
LIMIT = 10


class SoldOutError(Exception):
    """There is nothing left."""


@app.function
def price(item: str) -> int:
    if item == "moon":
        raise SoldOutError("there is one moon")
    return len(item)


@app.function
def total(prices: list[int]) -> int:
    return sum(prices)


@app.function
def fragile(sum_: int) -> int:
    if sum_ > LIMIT:
        raise ValueError(f"{sum_} is too much")
    return sum_


@app.function(calls=True)
def ask(text: str) -> str:
    app.answer(aliquot.task().token, {"said": text.upper(), "key": len(aliquot.task().key)})
    return "asked"


@app.function
def place() -> dict[str, object]:
    task = aliquot.task()
    return {"execution": task.execution, "key": task.key, "token": task.token}


@app.workflow
def order(items: list[str], gift: bool = False):
    prices = [price(item) for item in items]
    sum_ = total(prices)
    try:
        sum_ = fragile.options(retry=Retry(2, on=ValueError, interval="1s"))(sum_)
    except ValueError as error:
        return {"refused": str(error)}
    if gift:
        first, second = aliquot.parallel(price("ribbon"), price(items[0]))
        sum_ = sum_ + first * second
    return sum_


@app.workflow(timeout="1m")
def approval(text: str):
    return aliquot.wait_for(ask, text, timeout="30s")


@app.workflow
def slow():
    aliquot.sleep("1h")


@app.workflow(durable=False)
def express(x: int):
    return {"value": total([x, total([x, 1])])}


@app.workflow
def outer(items: list[str]):
    return [order([item]) for item in items]


@app.workflow
def wrapped():
    return {"value": total([1])}


@app.workflow
def places():
    return [place(), place()]


@app.function(batch=4)
def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


@app.function
def countdown(start: int):
    yield from range(start, 0, -1)


@app.workflow
def launch(start: int) -> list[object]:
    numbers = countdown(start)
    return [numbers, total(countdown(start)), doubled(start), [doubled(one) for one in numbers]]
