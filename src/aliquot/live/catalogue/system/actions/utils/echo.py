"""Returns its input."""


def main(args):
    return args
