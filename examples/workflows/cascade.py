"""A cascade: a small model answers what it is sure of, and only the rest goes to the large one."""

import aliquot
from aliquot import Retry

app = aliquot.App("cascade")
SURE = 0.8


@app.function
def small(number: int) -> dict:
    return {"prime": number % 2 == 1 and number % 3 != 0, "score": 0.5 if number > 100 else 0.9, "by": "small"}


@app.function(timeout="2m")
def large(number: int) -> dict:
    prime = number > 1 and all(number % other for other in range(2, int(number**0.5) + 1))
    return {"prime": prime, "score": 1.0, "by": "large"}


@app.workflow
def classify(number):
    found = small(number)
    if found["score"] < SURE:
        try:
            found = large.options(retry=Retry(attempts=3, on="Function.Lost"), timeout="30s")(number)
        except TimeoutError:
            return {**found, "note": "the large model took too long"}
    return found


if __name__ == "__main__":
    for number in (35, 119, 7919):
        print(number, classify.remote(number))
