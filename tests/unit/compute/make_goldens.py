#!/usr/bin/env python3
"""Writes kernel_goldens.h: what the CPU kernels must give, computed by NumPy in double precision.

usage: make_goldens.py > kernel_goldens.h
"""

import numpy as np

rng = np.random.default_rng(20240501)


def array(name, kind, values, fmt):
    print(f"inline constexpr {kind} {name}[] = {{")
    for i in range(0, len(values), 6):
        print("    " + ", ".join(fmt(v) for v in values[i : i + 6]) + ",")
    print("};")


def f32(v):
    text = float(np.float32(v)).hex()
    return text + "f"


def f64(v):
    return repr(float(v))


print("// Written by make_goldens.py; do not edit.\n\n#pragma once\n\nnamespace passel {\n")

# float32(pixel) * (1 / 255), every operation rounded to float32.
scale = np.float32(1) / np.float32(255)
array("kScaledPixels", "float", np.arange(256, dtype=np.float32) * scale, f32)

# Logits (6, 5) with a vanishing true class (row 1), a tie for the largest (row 2), large
# magnitudes (row 3), and the edge of the clip from both sides (rows 4 and 5).
logits = np.float32(rng.normal(0, 2, (6, 5)))
labels = np.array([2, 4, 1, 0, 3, 3])
logits[1] = [30, 1, 2, 3, -5]
logits[2] = [0.5, 1.5, 1.5, -1, 0]
logits[3] = [1000, -1000, 998, 0, 997]
logits[4] = [0, -50, -50, -23.0, -50]  # p = e^-23.0 > 1e-10
logits[5] = [0, -50, -50, -23.1, -50]  # p = e^-23.1 < 1e-10
x = logits.astype(np.float64)
shifted = x - x.max(axis=1, keepdims=True)
p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
rows = np.arange(len(labels))
true_p = p[rows, labels]
onehot = np.eye(5)[labels]
clip_gradient = np.where((true_p >= 1e-10)[:, None], p - onehot, 0)
clip_loss = -np.log(np.clip(true_p, 1e-10, 1)).sum()
free_loss = -(shifted[rows, labels] - np.log(np.exp(shifted).sum(axis=1))).sum()
correct = int((x.argmax(axis=1) == labels).sum())

array("kLogits", "float", logits.ravel(), f32)
array("kLabels", "unsigned char", labels, str)
array("kProbabilities", "double", p.ravel(), f64)
array("kClippedGradient", "double", clip_gradient.ravel(), f64)
array("kFreeGradient", "double", (p - onehot).ravel(), f64)
print(f"inline constexpr double kClippedLoss = {f64(clip_loss)};")
print(f"inline constexpr double kFreeLoss = {f64(free_loss)};")
print(f"inline constexpr unsigned kCorrect = {correct};")
print("\n}  // namespace passel")
