"""An OpenWhisk action that returns its arguments."""


def main(args):
    print("arguments:", sorted(args))
    return {"echo": args}
