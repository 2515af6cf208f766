"""Counts the letters of a text."""


def tally(args):
    print("counting", args["text"])
    return {"count": len(args["text"]), "unit": args["unit"]}
