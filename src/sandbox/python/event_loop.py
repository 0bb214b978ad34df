"""`asyncio.run` without sockets: a loop that waits only for timers."""

import asyncio
import time


class TimeLoop(asyncio.BaseEventLoop):
    """Runs tasks, timers and callbacks. No external event can wake it."""

    def __init__(self):
        super().__init__()
        self._selector = self

    def select(self, timeout):
        if timeout is None:
            raise RuntimeError("deadlock: every task waits for another")
        if timeout > 0:
            time.sleep(timeout)
        return []

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


def install():
    asyncio.new_event_loop = asyncio.events.new_event_loop = TimeLoop
