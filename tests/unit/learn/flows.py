"""Sessions for the tests: users who repeat themselves, more or less."""

import random

from aliquot.learn.steps import Step, begin, call
from aliquot.learn.training import Dated


def workflow(user, generator, shards=4):
    """Config, then the user's shards in any order, then the checkpoint; under the calls that open them."""
    order = generator.sample(range(shards), shards)
    return [
        begin(user),
        call(user, "train"),
        Step("data/config.json", 100),
        *(Step(f"data/{user}/shard-{number}", 2**20) for number in order),
        Step(f"data/{user}/base.ckpt", 2**30),
    ]


def chain(length=6, name="file"):
    return [Step(f"data/{name}-{number}", 1000 * number) for number in range(length)]


def many(sessions, users=3, seed=1):
    generator = random.Random(seed)
    return [Dated(float(number), workflow(f"user{number % users}", generator)) for number in range(sessions)]
