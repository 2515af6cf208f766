"""An approval: the workflow waits for a person, for days if need be, without a process that waits."""

import json

import aliquot

app = aliquot.App("approval")


class RejectedError(Exception):
    """The editor said no."""


@app.function
def draft(topic: str) -> str:
    return f"All about {topic}"


@app.function
def ask_editor(text: str) -> dict:
    """Pass the token on. A real one would send a mail; here the result stands in the history."""
    return {"please read": text, "token": aliquot.task().token}


@app.function
def publish(text: str) -> str:
    return f"published: {text}"


@app.workflow(timeout="7d")
def article(topic):
    text = draft(topic)
    try:
        answer = aliquot.wait_for(ask_editor, text, timeout="2d")
    except (RejectedError, TimeoutError) as error:
        return f"not published: {error}"
    return publish(f"{text}, {answer['change']}")


def token_of(execution) -> str:
    """Return the token that the function has passed on."""
    submitted = next(event for event in execution.follow() if event["type"] == "TaskSubmitted")
    return json.loads(submitted["taskSubmittedEventDetails"]["output"])["token"]


if __name__ == "__main__":
    first, second = article.start("planets"), article.start("moons")
    app.answer(token_of(first), {"change": "with pictures"})
    app.answer_failure(token_of(second), "RejectedError", "too short")
    print(first.result(timeout=60))
    print(second.result(timeout=60))
