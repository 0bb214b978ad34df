"""`asyncio.run` where there are no sockets: a loop that only ever waits for time."""

import asyncio
import time


class TimeLoop(asyncio.BaseEventLoop):
    """Runs tasks, timers and callbacks. Nothing from outside can wake it."""

    def __init__(self):
        super().__init__()
        self._selector = self

    def select(self, timeout):
        if timeout is None:
            raise RuntimeError("every task waits for another: nothing here can wake them")
        if timeout > 0:
            time.sleep(timeout)
        return []

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


def install():
    asyncio.new_event_loop = asyncio.events.new_event_loop = TimeLoop
