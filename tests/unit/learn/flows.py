"""Sessions for the tests, of users with repeating workflows."""

import random

from aliquot.learn.steps import AccessStep, begin, call
from aliquot.learn.training import DatedSession


def workflow(user, generator, shards=4):
    """Return a session: config, the user's shards in random order, then the checkpoint, with marks of the calls."""
    order = generator.sample(range(shards), shards)
    return [
        begin(user),
        call(user, "train"),
        AccessStep("data/config.json", 100),
        *(AccessStep(f"data/{user}/shard-{number}", 2**20) for number in order),
        AccessStep(f"data/{user}/base.ckpt", 2**30),
    ]


def chain(length=6, name="file"):
    return [AccessStep(f"data/{name}-{number}", 1000 * number) for number in range(length)]


def many(sessions, users=3, seed=1):
    generator = random.Random(seed)
    return [DatedSession(float(number), workflow(f"user{number % users}", generator)) for number in range(sessions)]
