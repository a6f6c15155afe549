"""mnist - what the Python programs of bench/peers share: the data, the batches, the options.

IDX files are read as float32 rows in [0, 1]; a file may be plain or gzip. NumPy is all it needs.
"""

import ctypes
import gzip
import os
import signal

import numpy as np


def parse(parser):
    """The options of every program; ends with 2 on wrong usage."""
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of all workers together")
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    parser.add_argument("--limit", type=int, default=120, help="seconds until it is ended")
    parser.add_argument("--cpus", default="", help="one processor per worker; empty: anywhere")
    parser.add_argument("--sync", action="store_true", help="one mean gradient per update")
    flags = parser.parse_args()
    if flags.workers < 1 or flags.steps < flags.workers:
        parser.error("--workers must be at least 1, and --steps at least --workers")
    flags.cpus = [int(cpu) for cpu in flags.cpus.split(",") if cpu]
    return flags


def cpu_of(flags, index):
    """The processor of worker `index`, or None where there are fewer processors than workers."""
    return flags.cpus[index] if index < len(flags.cpus) else None


def read_idx(folder, name):
    """uint8 array of one IDX file. Errors: OSError, ValueError."""
    path = os.path.join(folder, name)
    opened = open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb")
    with opened as file:
        data = file.read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">i4", dimensions, 4)
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions)
    return values.reshape(shape)


def load(folder, kind):
    """(images float32 (examples, 784), labels uint8 (examples)); `kind` is train or t10k."""
    images = read_idx(folder, f"{kind}-images-idx3-ubyte")
    labels = read_idx(folder, f"{kind}-labels-idx1-ubyte")
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255), labels


def batches(random, examples, size):
    """Rows of one batch after the other, every example once per epoch."""
    while True:
        order = random.permutation(examples)
        for first in range(0, examples - size + 1, size):
            yield order[first:first + size]


def end_with_parent():
    """This process is killed when its parent ends (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
