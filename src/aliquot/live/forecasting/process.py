"""The forecaster as a process: `python -m aliquot.live.forecasting.process FD STEP_S DATA DRIFT`.

It learns from the profiles that are on disk, then from calls that the server sends. Several times in a step it sends a
report, with a forecast if calls are expected. It ends when the server closes the connection.
"""

import os
import select
import socket
import sys
import time
from pathlib import Path

import msgspec

from aliquot.learn.demand.drift import DriftSettings
from aliquot.live.forecasting.messages import LENGTH, MAX_FRAME_BYTES, frame, seen_decoder
from aliquot.live.forecasting.served import ServedForecaster

NICENESS = 10


class ForecastLoop:
    """Reads calls and writes forecasts on one socket."""

    def __init__(self, connection: socket.socket, forecaster: ServedForecaster) -> None:
        self._connection = connection
        self._forecaster = forecaster
        self._read = bytearray()

    def run(self) -> None:
        """Serve until the server closes the connection."""
        next_s = time.monotonic()
        while True:
            ready, _, _ = select.select([self._connection], [], [], max(0.0, next_s - time.monotonic()))
            if ready and not self._receive():
                return
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._forecaster.tick_s
                self._connection.sendall(frame(self._forecaster.report(time.time())))

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
            self._forecaster.seen(seen_decoder.decode(body))
        return bool(data)


def main(fd: int, step_s: float, data: Path, drift: DriftSettings) -> None:
    os.nice(NICENESS)
    forecaster = ServedForecaster(data, step_s, drift)
    with socket.socket(fileno=fd) as connection:
        try:
            ForecastLoop(connection, forecaster).run()
        except ConnectionError:
            return


if __name__ == "__main__":
    settings = msgspec.json.decode(sys.argv[4], type=DriftSettings)
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), settings)
