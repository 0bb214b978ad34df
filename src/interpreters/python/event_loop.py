"""`asyncio`, thread pools and queues without sockets and threads: a loop that waits only for timers and for calls of tools, work
for threads that is done at once, by the caller, and waits that end in time."""

import asyncio
import concurrent.futures
import concurrent.futures.thread
import queue
import threading
import time

import _sekisho_tool_calls
from _sekisho_errors import NO_THREADS

# A loop that is never idle looks for ended calls this seldom: each look is a call of the host.
BUSY_TURNS = 100


class TimeLoop(asyncio.BaseEventLoop):
    """Runs tasks, timers and callbacks. Only the end of a call of a tool can wake it."""

    def __init__(self):
        super().__init__()
        self._selector = self
        self._busy_turns = 0

    def select(self, timeout):
        if _sekisho_tool_calls.are_under_way():
            self._busy_turns = self._busy_turns + 1 if timeout == 0 else 0
            if self._busy_turns % BUSY_TURNS == 0:
                # Ended calls set the results of futures, whose tasks the loop then runs.
                _sekisho_tool_calls.wait(timeout)
            return []
        if timeout is None:
            raise RuntimeError("deadlock: every task waits for another")
        if timeout > 0:
            time.sleep(timeout)
        return []

    def run_in_executor(self, executor, function, *arguments):
        done = self.create_future()
        try:
            done.set_result(function(*arguments))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            done.set_exception(error)
        return done

    async def shutdown_default_executor(self, timeout=None):
        pass

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


class ThreadPoolExecutor(concurrent.futures.Executor):
    """Does each task when it is submitted."""

    def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=(), **_options):
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._max_workers = max_workers or 1
        self._initialize = (lambda: initializer(*initargs)) if initializer else None
        self._is_shut_down = False

    def submit(self, function, /, *arguments, **named):
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        initialize, self._initialize = self._initialize, None
        if initialize:
            initialize()
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._is_shut_down = True


def wait_alone(condition, timeout=None):
    """In place of `Condition.wait`, by which queues, events and semaphores wait: no other thread can notify it."""
    if not condition._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    if timeout is None:
        raise RuntimeError(f"deadlock: nothing can end this wait ({NO_THREADS})")
    time.sleep(max(0, timeout))
    return False


def install():
    threading.Condition.wait = wait_alone
    # The other one waits in C.
    queue.SimpleQueue = queue._PySimpleQueue
    asyncio.new_event_loop = asyncio.events.new_event_loop = TimeLoop
    concurrent.futures.ThreadPoolExecutor = concurrent.futures.thread.ThreadPoolExecutor = ThreadPoolExecutor
