"""Returns the first lines of an array."""


def main(args):
    lines = args.get("lines") or []
    num = args.get("num") or 1
    return {"lines": lines[:num], "num": num}
