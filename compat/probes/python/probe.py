"""Runs the tests of a probe program and prints one JSON line for each.

A probe program defines functions named test_..., most of which take the broker's address, and ends in probe.main(). A
test passes when it returns. It gets topics and groups of its own, so that tests do not disturb each other, and may be
run again on the same broker.
"""
import argparse
import asyncio
import inspect
import itertools
import json
import os
import socket
import struct
import sys
import threading
import time
import traceback

TEST_PATIENCE = 40  # seconds that one test may take
PATIENCE = 20  # seconds that one wait within a test may take
DETAIL_LINES = 12

_names = itertools.count(1)
_run = f"{os.getpid()}-{int(time.time())}"


def main():
    """Runs the tests named on the command line, or all of them, against the broker at --broker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", default="127.0.0.1:9092")
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args()
    tests = {name.removeprefix("test_"): f for name, f in vars(sys.modules["__main__"]).items() if name.startswith("test_")}
    unknown = set(args.tests) - set(tests)
    if unknown:
        sys.exit(f"no test is called {', '.join(sorted(unknown))}; there are {', '.join(tests)}")
    for name, test in tests.items():
        if not args.tests or name in args.tests:
            print(json.dumps(_run_one(name, test, args.broker)), flush=True)
    sys.stdout.flush()
    os._exit(0)  # a test that hung has left threads behind


def _run_one(name, test, broker):
    """Runs one test in a thread of its own, so that one that hangs is a failure and not the end."""
    outcome = {"test": name, "status": "failed", "detail": ""}

    def body():
        try:
            done = test(broker)
            if inspect.iscoroutine(done):
                asyncio.run(done)
            outcome["status"] = "passed"
        except BaseException:  # a client may raise anything
            outcome["detail"] = _last(traceback.format_exc())

    started = time.monotonic()
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(TEST_PATIENCE)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        outcome = {"test": name, "status": "failed", "detail": _last(f"{stack}no end within {TEST_PATIENCE} s")}
    return dict(outcome, took_ms=int((time.monotonic() - started) * 1000))


def _last(text):
    return "\n".join(text.strip().splitlines()[-DETAIL_LINES:])


def name(kind):
    """A name for a topic or group that no other test and no earlier run has."""
    return f"{kind}-{next(_names)}-{_run}"


def equal(got, want, what="values"):
    """Raises if got is not want."""
    if got != want:
        raise AssertionError(f"{what}: got {_short(got)}, want {_short(want)}")


def _short(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


class raises:
    """A with statement whose body must raise one of these errors; afterwards `error` is what it raised."""

    def __init__(self, *errors):
        self.errors, self.error = errors, None

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if error is None:
            raise AssertionError(f"nothing was raised, want {' or '.join(e.__name__ for e in self.errors)}")
        self.error = error
        return isinstance(error, self.errors)


def await_until(condition, what):
    """Calls condition until it returns something true, and returns that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if done := condition():
            return done
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE} s in vain for: {what}")


def cut_connections(broker):
    """Shuts every TCP connection down that this process has to the broker, behind the client's back; returns how many."""
    port = int(broker.rsplit(":", 1)[1])
    cut = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(fd))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
        except OSError:  # not a socket, not connected, or gone by now
            continue
    return cut


# What a batch of one record adds to a value between 8,193 and 1,048,575 bytes without key and headers: the batch's header,
# then the record's length (3 bytes), attributes, two deltas and the absent key (4), the value's length (3), no headers (1).
SINGLE_RECORD_OVERHEAD = 61 + 3 + 4 + 3 + 1


def murmur2_partition(key, partitions):
    """The partition that Kafka's own clients choose for a key."""
    m, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(key)
    h = (0x9747B28C ^ length) & mask
    for (k,) in struct.iter_unpack("<I", key[: length & ~3]):
        k = k * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = key[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions
