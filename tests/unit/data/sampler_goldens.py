"""Prints the orders that samplers_test.cc expects: Fisher-Yates from the last place down, with the
generator that ../base/random_golden.py writes down.
"""

import contextlib
import io
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../base"))
with contextlib.redirect_stdout(io.StringIO()):  # it prints goldens of its own
    from random_golden import below, mix64, seeded


def stream(seed, name, worker, position):
    job = mix64(mix64(mix64(seed) ^ int.from_bytes(name.encode(), "big")) ^ 0)
    return seeded(mix64(mix64(mix64(job) ^ worker) ^ position))


def epoch_order(n, seed, worker, epoch):
    random = stream(seed, "epoch", worker, epoch)
    order = list(range(n))
    for i in range(n, 1, -1):
        j = below(random, i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def random_batch(n, batch, seed, worker, k):
    random = stream(seed, "batch", worker, k)
    pool = list(range(n))
    for i in range(batch):
        j = i + below(random, n - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:batch]


for args in ((10, 7, 0, 0), (10, 7, 0, 1), (10, 7, 3, 0)):
    print("epoch_order(n, seed, worker, epoch) =", args, epoch_order(*args))
print("first of epoch_order(60000, 1, 2, 5)", epoch_order(60000, 1, 2, 5)[:5])
for args in ((1000, 6, 7, 0, 0), (1000, 6, 7, 0, 1), (1000, 6, 7, 1, 0)):
    print("random_batch(n, batch, seed, worker, k) =", args, random_batch(*args))
