"""Prints what dataset_test.cc expects of real MNIST, read with Python's gzip and NumPy alone.

  python3 mnist_goldens.py <dir with the four .gz files>
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
from mnist import read_idx

for part in ("train", "t10k"):
    images = read_idx(sys.argv[1], part + "-images-idx3-ubyte")
    labels = read_idx(sys.argv[1], part + "-labels-idx1-ubyte")
    flat = images.reshape(-1).astype(np.uint64)
    print(part, images.shape, "histogram", np.bincount(labels).tolist())
    print("  pixel sum", flat.sum(), "sum of pixel * (position mod 65521)",
          (flat * (np.arange(len(flat), dtype=np.uint64) % 65521)).sum())
    print("  first labels", labels[:10].tolist(), "last", labels[-5:].tolist())
