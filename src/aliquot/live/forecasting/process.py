"""The forecaster as a process: `python -m aliquot.live.forecasting.process FD STEP_S DATA`.

It learns from the profiles that are on disk, then from calls that the server sends, and sends forecasts several times
in a step. It ends when the server closes the connection.
"""

import os
import select
import socket
import sys
import time
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.core.events import DemandForecast
from aliquot.learn.demand.calls import CallForecaster
from aliquot.live.forecasting.messages import LENGTH, MAX_FRAME_BYTES, frame, seen_decoder
from aliquot.live.profile.reading import read_profiles
from aliquot.live.profile.records import SECOND_S

NICENESS = 10
MAX_HISTORY_S = 86_400  # of profiles that are read at the start


class ForecastLoop:
    """Reads calls and writes forecasts on one socket."""

    def __init__(self, connection: socket.socket, forecaster: CallForecaster) -> None:
        self._connection = connection
        self._forecaster = forecaster
        self._read = bytearray()

    def run(self) -> None:
        """Serve until the server closes the connection."""
        next_s = time.monotonic() + self._forecaster.tick_s
        while True:
            ready, _, _ = select.select([self._connection], [], [], max(0.0, next_s - time.monotonic()))
            if ready and not self._receive():
                return
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._forecaster.tick_s
                rows = self._forecaster.forecast(time.time())
                if rows:
                    self._connection.sendall(frame(DemandForecast(rows, self._forecaster.valid_s)))

    def _receive(self) -> bool:
        """Learn from what the server has sent. Return false if it has closed the connection."""
        data = self._connection.recv(1 << 16)
        self._read += data
        while len(self._read) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._read)
            if length > MAX_FRAME_BYTES:
                return False
            if len(self._read) < LENGTH.size + length:
                break
            body = bytes(self._read[LENGTH.size : LENGTH.size + length])
            del self._read[: LENGTH.size + length]
            for seen in seen_decoder.decode(body):
                self._forecaster.seen((seen.tenant, seen.function), seen.at_s, seen.at_once)
        return bool(data)


def learn_from_profiles(forecaster: CallForecaster, data: Path) -> None:
    """Learn from the calls of the last day that the server has recorded."""
    try:
        found = read_profiles(data, SECOND_S, MAX_HISTORY_S)
    except (InputError, OSError):
        return  # there are none yet
    rows = sorted((row for rows in found.values() for row in rows if row.calls), key=lambda row: row.t_s)
    for row in rows:
        forecaster.seen(row.key, row.t_s, row.at_once)


def main(fd: int, step_s: float, data: Path) -> None:
    os.nice(NICENESS)
    forecaster = CallForecaster(step_s)
    learn_from_profiles(forecaster, data)
    with socket.socket(fileno=fd) as connection:
        try:
            ForecastLoop(connection, forecaster).run()
        except ConnectionError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
