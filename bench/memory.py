"""The memory that one update of pre-training takes, at its peak: the first one, of a new process.

    python bench/memory.py --set albert=albert_large_v2 --set train_batch_size=8 \\
        --set num_micro_batches=8 --set layer_loop=true

Takes the flags of bench/train_step.py but --steps. Prints one line of JSON: gigabytes (10^9 bytes)
of the process at its peak, and before the update, with weights and moments; seconds and CPU seconds
of the update, its compiling included. Stops itself if it gets over --max_gigabytes.
"""

import json
import os
import resource
import sys
import threading
import time

import train_step
from absl import app, flags

from albert_tf import config_io
from albert_tf.train_config import PretrainConfig

MAX_GIGABYTES = flags.DEFINE_float("max_gigabytes", 16.0, "resident memory at which it gives up")
SECONDS_BETWEEN_LOOKS = 0.2


def stop_over(max_gigabytes: float) -> None:
    """Ends the process as soon as its memory is over the limit, before others have to suffer."""
    page = resource.getpagesize()
    while True:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * page / 1e9
        if resident > max_gigabytes:
            print(f"memory.py: over --max_gigabytes={max_gigabytes}.", file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main(_):
    settings = config_io.load(PretrainConfig, train_step.CONFIG.value, train_step.SET.value)
    threading.Thread(target=stop_over, args=[MAX_GIGABYTES.value], daemon=True).start()
    update = train_step.make_update(settings, warm_up=0)
    before = peak_gigabytes()
    start, cpu_start = time.perf_counter(), time.process_time()
    done = update()
    found = {
        "peak_gigabytes": round(peak_gigabytes(), 2),
        "peak_gigabytes_before_the_update": round(before, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1),
        "gradient_norm": round(done["gradient_norm"], 4),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    app.run(main)
