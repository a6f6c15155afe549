#!/usr/bin/env python3
"""Golden values of cluster_spec_test.cc and placement_test.cc, from rules written down here anew."""
import math


def fnv1a(text):
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001b3) % 2**64
    return h


def spec_hashes():
    assert fnv1a("") == 0xcbf29ce484222325 and fnv1a("foobar") == 0x85944171f73967e8  # published
    for text in ("ps{0=localhost:2222}worker{0=localhost:2223,1=localhost:2224}",
                 "ps{0=localhost:2222}worker{0=localhost:2224,1=localhost:2223}",
                 "ps{0=[::1]:1}worker{0=10.0.0.1:65535}"):
        print(text, hex(fnv1a("passel-cluster-1:" + text)))


def partitions():
    """(rule, arguments, rows, bytes of a row) -> parts, as in the reference program's partitioners."""
    print("fixed_size")
    for n, rows in ((1, 784), (3, 784), (5, 784), (10, 4), (784, 784)):
        print(n, rows, "->", min(n, rows))
    print("min_max")
    for parts, slice_bytes, rows, row in ((8, 256 << 10, 784, 400), (8, 100 << 10, 784, 400),
                                          (2, 100 << 10, 784, 400), (8, 1, 4, 400),
                                          (8, 256 << 10, 1024, 1024), (8, 313600, 784, 400),
                                          (8, 313599, 784, 400)):
        print(parts, slice_bytes, rows, row, "->",
              max(1, min(rows, parts, math.ceil(rows * row / slice_bytes))))
    print("variable_axis_size")
    for size, cap, rows, row in ((100 << 10, None, 784, 400), (100 << 10, 2, 784, 400),
                                 (399, None, 784, 400), (400, None, 784, 400),
                                 (799, None, 784, 400), (800, None, 785, 400),
                                 (1 << 30, None, 784, 400), (1, 5, 3, 400)):
        per = max(1, size // row)
        shards = math.ceil(rows / per)
        print(size, cap, rows, row, "->", shards if cap is None else min(cap, shards))


spec_hashes()
partitions()
