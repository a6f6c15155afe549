"""Writes the npz file that data_source_test.cc reads, with NumPy's own writer.

  python3 make_npz.py <dir with the four .gz files> <file to write> savez|savez_compressed <label type>
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
from mnist import read_idx

source, target, writer, label_type = sys.argv[1:]
arrays = {}
for ours, name in (("train", "train"), ("test", "t10k")):
    arrays["x_" + ours] = read_idx(source, name + "-images-idx3-ubyte")
    arrays["y_" + ours] = read_idx(source, name + "-labels-idx1-ubyte").astype(label_type)
getattr(np, writer)(target, **arrays)
