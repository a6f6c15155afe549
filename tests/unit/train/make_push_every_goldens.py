#!/usr/bin/env python3
"""Writes push_every_goldens.h: values after a few updates, each of one large batch, in double.

The order of the examples is that of tests/unit/data/sampler_goldens.py; pixels, labels and first
values follow formulas that push_every_test.cc builds too.

usage: make_push_every_goldens.py > push_every_goldens.h
"""

import contextlib
import io
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1] / "data"))
with contextlib.redirect_stdout(io.StringIO()):
    from sampler_goldens import epoch_order

INPUTS, HIDDEN, CLASSES, EXAMPLES, SEED = 6, 5, 3, 26, 9
SHAPES = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
LABELS = np.array([(e * 7 + e // 3) % CLASSES for e in range(EXAMPLES)])
PIXELS = np.array([[(e * 71 + i * 37 + 11) % 256 for i in range(INPUTS)] for e in range(EXAMPLES)])


def first_value(variable, shape):
    n = int(np.prod(shape))
    values = [((variable * 53 + e * 29 + 17) % 128 - 64) / 64 for e in range(n)]
    return np.array(values).reshape(shape)


def gradients(params, examples, reduction):
    x = PIXELS[examples] / 255
    h = np.maximum(x @ params[0] + params[1], 0)
    logits = h @ params[2] + params[3]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    delta = p - np.eye(CLASSES)[LABELS[examples]]
    if reduction == "mean":
        delta /= len(examples)
    back = (delta @ params[2].T) * (h > 0)
    return [x.T @ back, back.sum(axis=0), h.T @ delta, delta.sum(axis=0)]


def train(optimizer, rate, reduction, sizes):
    """Values after one update for each of `sizes` examples."""
    count = sum(sizes)
    epochs = -(-count // EXAMPLES)
    order = np.concatenate([epoch_order(EXAMPLES, SEED, 0, e) for e in range(epochs)])
    params = [first_value(v, shape) for v, shape in enumerate(SHAPES)]
    m = [np.zeros(shape) for shape in SHAPES]
    s = [np.zeros(shape) for shape in SHAPES]
    begin = 0
    for t, size in enumerate(sizes, 1):
        found = gradients(params, order[begin : begin + size], reduction)
        begin += size
        for v, g in enumerate(found):
            if optimizer == "Sgd":
                params[v] -= rate * g
                continue
            m[v] += (g - m[v]) * (1 - 0.9)
            s[v] += (g**2 - s[v]) * (1 - 0.999)
            alpha = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            params[v] -= alpha * m[v] / (np.sqrt(s[v]) + 1e-8)
    return params


# optimizer, learning rate, reduction, batch size, local steps of each push
CASES = [
    ("Sgd", 0.5, "mean", 4, [3] * 6),
    ("Sgd", 0.0625, "sum", 4, [3] * 6),
    ("Adam", 0.01, "mean", 4, [3] * 6),
    ("Adam", 0.01, "sum", 5, [4] * 5),
    ("Sgd", 0.5, "mean", 4, [5, 5, 3]),  # the last takes what local steps are left
    ("Sgd", 0.5, "mean", 1, [26, 26]),
    ("Adam", 0.01, "mean", 3, [2]),
]

print("// Written by make_push_every_goldens.py; do not edit.")
print("// clang-format off\n#pragma once\n\n#include <vector>\n")
print('#include "nn/model_config.h"\n#include "optim/optimizer.h"\n\nnamespace passel {\n')
for name, value in (
    ("Inputs", INPUTS), ("Hidden", HIDDEN), ("Classes", CLASSES), ("Examples", EXAMPLES),
):
    print(f"inline constexpr int kGolden{name} = {value};")
print(f"inline constexpr int kGoldenSeed = {SEED};\n")
print("struct PushEveryGolden {\n  OptimizerKind optimizer;\n  double learning_rate;")
print("  LossReduction loss;\n  int batch_size, push_every, local_steps, pushes;")
print("  std::vector<std::vector<double>> values;  // [variables]\n};\n")
print("inline const std::vector<PushEveryGolden>& PushEveryGoldens() {")
print("  static const std::vector<PushEveryGolden> goldens = {")
for optimizer, rate, reduction, batch, steps in CASES:
    values = train(optimizer, rate, reduction, [batch * n for n in steps])
    print(f"    {{OptimizerKind::k{optimizer}, {rate}, LossReduction::k{reduction.title()},")
    print(f"     {batch}, {steps[0]}, {sum(steps)}, {len(steps)},\n     {{", end="")
    rows = ["{" + ", ".join(f"{x:.11g}" for x in np.ravel(v)) + "}" for v in values]
    print(",\n      ".join(rows) + "}},")
print("  };\n  return goldens;\n}\n\n}  // namespace passel")
