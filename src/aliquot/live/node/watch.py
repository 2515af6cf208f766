"""Looks after devices that can fail: from time to time each is asked whether it is still fit for use."""

import asyncio
from collections.abc import Callable

EVERY_S = 5


async def watch(complaints: Callable[[], dict[str, str]], lost: Callable[[str, str], None]) -> None:
    """Until it is cancelled. `complaints` is asked in a thread; `lost` is called once for each device."""
    loop = asyncio.get_running_loop()
    told: set[str] = set()
    while True:
        await asyncio.sleep(EVERY_S)
        for device, why in (await loop.run_in_executor(None, complaints)).items():
            if device not in told:
                told.add(device)
                lost(device, why)
