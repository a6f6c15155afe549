"""Trains softmax regression and 784-100-10 (ReLU) on an IDX directory; prints test accuracies.

The numbers in src/data/digits.h come from here:  python3 digits_accuracy.py <dir> [epochs]
Adam with learning rate 0.001, batches of 100, float32 pixels / 255.
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
from mnist import load


def train(x, y, x_test, y_test, hidden, epochs, seed=0):
    """Returns the test accuracy after each epoch."""
    rng = np.random.default_rng(seed)
    sizes = [x.shape[1]] + ([hidden] if hidden else []) + [10]
    params = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        scale = 1.0 / np.sqrt(fan_in) if hidden else 0.0
        params.append((scale * rng.standard_normal((fan_in, fan_out))).astype(np.float32))
        params.append(np.zeros(fan_out, np.float32))
    m = [np.zeros_like(p) for p in params]
    v = [np.zeros_like(p) for p in params]

    def forward(batch):
        h = np.maximum(batch @ params[0] + params[1], 0) if hidden else batch
        return h, h @ params[-2] + params[-1]

    step, accuracies = 0, []
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), 100):
            pick = order[begin:begin + 100]
            h, logits = forward(x[pick])
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(pick)), y[pick]] -= 1
            p /= len(pick)
            grads = [h.T @ p, p.sum(0)]
            if hidden:
                back = (p @ params[2].T) * (h > 0)
                grads = [x[pick].T @ back, back.sum(0)] + grads
            step += 1
            rate = 0.001 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            for i, g in enumerate(grads):
                m[i] += 0.1 * (g - m[i])
                v[i] += 0.001 * (g * g - v[i])
                params[i] -= (rate * m[i] / (np.sqrt(v[i]) + 1e-8)).astype(np.float32)
        accuracies.append(float((forward(x_test)[1].argmax(1) == y_test).mean()))
    return accuracies


def main():
    directory = sys.argv[1]
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    data = {}
    for part in ("train", "t10k"):
        images, labels = load(directory, part)
        data[part] = (images, labels.astype(np.int64))
    for name, hidden in (("softmax", 0), ("784-100-10", 100)):
        result = train(*data["train"], *data["t10k"], hidden, epochs)
        print(name, len(data["train"][0]), " ".join("%.4f" % a for a in result), flush=True)


if __name__ == "__main__":
    main()
