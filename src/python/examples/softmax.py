"""Softmax regression in NumPy: alone, or with `passel run --workers 2 -- python softmax.py`."""

import numpy as np

import passel
import passel.digits

x, labels = passel.digits.load("train")
test_x, test_labels = passel.digits.load("t10k")

with passel.join({"w": (784, 10), "b": (10,)}, optimizer="sgd", learning_rate=0.2) as job:
    random = np.random.default_rng(job.rank)
    while job.global_step < 2000 and not job.stopped:
        rows = random.integers(len(x), size=100)
        v = job.pull()
        p = np.exp(x[rows] @ v["w"] + v["b"])
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(100), labels[rows]] -= 1
        np.matmul(x[rows].T, p / 100, out=job.gradients["w"])
        p.mean(axis=0, out=job.gradients["b"])
        job.step()
    v = job.pull("copy")
if job.rank == 0:
    print(f"accuracy {np.mean((test_x @ v['w'] + v['b']).argmax(axis=1) == test_labels):.4f}")
