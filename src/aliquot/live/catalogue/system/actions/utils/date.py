"""Returns the current date and time."""

from datetime import UTC, datetime


def main(args):
    now = datetime.now(UTC)
    print("It is now", now)
    return {"date": now.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
