"""An ensemble: three models look at the same text at once, and the majority decides."""

import aliquot

app = aliquot.App("ensemble")
GOOD, BAD = {"good", "great", "love", "fine"}, {"bad", "awful", "hate", "slow"}


@app.function
def by_words(text: str) -> str:
    words = text.lower().split()
    return "good" if sum(word in GOOD for word in words) >= sum(word in BAD for word in words) else "bad"


@app.function
def by_marks(text: str) -> str:
    return "bad" if text.endswith("!") or "not" in text.split() else "good"


@app.function
def by_length(text: str) -> str:
    return "good" if len(text) < 30 else "bad"


@app.workflow
def vote(text):
    votes = aliquot.parallel(by_words(text), by_marks(text), by_length(text))
    return {"verdict": "good" if votes.count("good") > votes.count("bad") else "bad", "votes": votes}


@app.workflow
def vote_all(texts):
    """Ask about many texts at once: each is an execution of its own."""
    return [vote(text)["verdict"] for text in texts]


if __name__ == "__main__":
    print(vote.remote("I love it"))
    print(vote_all.remote(["I love it", "not good, and awful", "I hate it, it is so slow and so bad!"]))
