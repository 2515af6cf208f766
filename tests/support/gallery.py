"""An app whose functions hand on objects that JSON cannot hold, for tests of workflows."""

import aliquot

app = aliquot.App("gallery")
LARGE_BYTES = 3_000_000


class Picture:
    """A picture that has passed through some functions."""

    def __init__(self, pixels, passed=()):
        self.pixels = pixels
        self.passed = list(passed)

    def __eq__(self, other):
        return (self.pixels, self.passed) == (other.pixels, other.passed)

    __hash__ = None


class TooDarkError(Exception):
    pass


@app.function()
def load(name, size=10):
    return {"picture": Picture(name.encode() * size, ["load"]), "score": len(name)}


@app.function()
def change(picture, by=""):
    return Picture(picture.pixels, [*picture.passed, by or "change"])


@app.function()
def frames(count):
    return [Picture(bytes([number]), ["frames"]) for number in range(count)]


@app.function()
def describe(picture):
    return {"bytes": len(picture.pixels), "passed": picture.passed}


@app.function()
def raw(size):
    return {"left": b"l" * size, "right": bytearray(b"r" * size), "small": b"s", "size": size}


@app.function()
def join(left, right, small):
    return bytes(left) + bytes(right) + small


@app.function()
def refuse(picture):
    if picture.pixels:
        raise TooDarkError("too dark")
    return picture


@app.function()
def count(texts):
    return sum(len(text) for text in texts)


@app.function()
def many(total):
    return {"texts": ["x" * 1000] * total, "total": total}


@app.function(group="darkroom")
def develop(picture):
    return picture


@app.function(group="darkroom")
def enlarge(picture, other):
    return Picture(picture.pixels + other.pixels, [*picture.passed, "enlarge"])


@app.workflow
def show(name, size=10):
    made = load(name, size)
    picture = change(made["picture"], "long") if made["score"] > 3 else change(made["picture"])
    return describe(picture)


@app.workflow
def joined(size):
    made = raw(size)
    whole = join(made["left"], made["right"], made["small"])
    aliquot.sleep("1s")
    return [whole, join(whole, made["small"], made["small"]), made["size"]]


@app.workflow(durable=False)
def joined_quickly(size):
    made = raw(size)
    whole = join(made["left"], made["right"], made["small"])
    return [whole, join(whole, made["small"], made["small"]), made["size"]]


@app.workflow
def keep(name, size=10):
    made = load(name, size)
    aliquot.sleep("1s")
    return {"picture": change(made["picture"]), "of": name}


@app.workflow
def alone(picture):
    return change(picture)


@app.workflow(durable=False)
def quickly(picture, size=10):
    other = load("b", size)
    first, second = aliquot.parallel(change(picture, "left"), change(other["picture"], "right"))
    return [first, second, other["score"]]


@app.workflow
def each(total):
    return [describe(change(one)) for one in frames(total)]


@app.workflow
def caught(name):
    made = load(name)
    try:
        return refuse(made["picture"])
    except TooDarkError as error:
        return {"error": str(error), "picture": made["picture"]}


@app.workflow
def counted(texts):
    return count(texts)


@app.workflow
def large(total):
    made = many(total)
    return [made["total"], count(made["texts"])]


@app.workflow
def nested(name):
    inner = keep(name)
    return describe(alone(inner["picture"]))


@app.workflow
def looked_into(name):
    made = load(name)
    return made["picture"]["pixels"]


@app.workflow
def compared(name):
    made = load(name)
    return made["picture"] == 1


@app.workflow
def in_group(picture, other):
    return describe(enlarge(develop(picture), other))
