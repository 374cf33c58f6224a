"""Looking at the stacks of other threads stops nobody, though Python itself does so where garbage is collected meanwhile."""

from __future__ import annotations

import sys

from clean import ran

LOOKS_WHILE_GARBAGE_IS_DUE = """
import faulthandler, gc, threading, time

from ray_snapshot.runtime.here import frames_of_threads

faulthandler.dump_traceback_later(60, exit=True)

class SlowToGo:
    def __del__(self):
        time.sleep(0.2)  # other threads run meanwhile, and want the list of threads

def begins_threads():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

gc.collect()
gc.disable()
waiting, may_end = threading.Semaphore(0), threading.Event()

def waits():
    waiting.release()
    may_end.wait()

for target in (*[waits] * 20, begins_threads):
    threading.Thread(target=target, daemon=True).start()
for _ in range(20):
    waiting.acquire()
garbage = SlowToGo()
garbage.itself = garbage
del garbage
gc.set_threshold(gc.get_count()[0] + 8)
gc.enable()
assert len(frames_of_threads()) >= 21
assert gc.isenabled()
print("seen", flush=True)
may_end.set()
"""


def test_a_collection_that_is_due_stops_nobody() -> None:
    # without the collector's rest this hangs in each of ten tries under Python 3.11.7
    done = ran(sys.executable, "-c", LOOKS_WHILE_GARBAGE_IS_DUE)
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr
