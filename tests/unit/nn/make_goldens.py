#!/usr/bin/env python3
"""Writes model_goldens.h: loss, gradients and probabilities of small models, by NumPy in double.

Parameters and pixels follow formulas that float32 holds exactly; model_test.cc builds the same.

usage: make_goldens.py > model_goldens.h
"""

import numpy as np

INPUTS, CLASSES, BATCH = 6, 3, 5
LABELS = [2, 0, 1, 1, 2]


def pixels():
    return np.array([[(b * 71 + i * 37 + 11) % 256 for i in range(INPUTS)] for b in range(BATCH)])


def parameter(variable, shape):
    n = int(np.prod(shape))
    values = [((variable * 53 + e * 29 + 17) % 128 - 64) / 64 for e in range(n)]
    return np.array(values).reshape(shape)


def run(hidden, reduction, clip, spread):
    """Loss, probabilities and gradients; `spread` multiplies the last weights."""
    widths = [INPUTS, *hidden, CLASSES]
    params = []
    for layer in range(len(widths) - 1):
        params.append(parameter(2 * layer, (widths[layer], widths[layer + 1])))
        params.append(parameter(2 * layer + 1, (widths[layer + 1],)))
    params[-2] = params[-2] * spread
    values = [pixels() * np.float64(np.float32(1) / np.float32(255))]
    for layer in range(len(hidden)):
        values.append(np.maximum(values[-1] @ params[2 * layer] + params[2 * layer + 1], 0))
    logits = values[-1] @ params[-2] + params[-1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    true_p = p[np.arange(BATCH), LABELS]
    loss = -np.log(np.clip(true_p, 1e-10, 1) if clip else true_p)
    delta = p - np.eye(CLASSES)[LABELS]
    if clip:
        delta[true_p < 1e-10] = 0
    divisor = BATCH if reduction == "mean" else 1
    delta = delta / divisor
    gradients = [None] * len(params)
    for layer in reversed(range(len(hidden) + 1)):
        gradients[2 * layer] = values[layer].T @ delta
        gradients[2 * layer + 1] = delta.sum(axis=0)
        if layer > 0:
            delta = (delta @ params[2 * layer].T) * (values[layer] > 0)
    correct = int((logits.argmax(axis=1) == np.array(LABELS)).sum())
    return loss.sum() / divisor, correct, int((true_p < 1e-10).sum()), p, gradients


def braces(values):
    return "{" + ", ".join(repr(float(v)) for v in np.ravel(values)) + "}"


print("// Written by make_goldens.py; do not edit.\n")
print("#pragma once\n\n#include <cstddef>\n#include <vector>\n\nnamespace passel {\n")
print(f"inline constexpr std::size_t kGoldenInputs = {INPUTS}, kGoldenClasses = {CLASSES};")
print(f"inline constexpr unsigned char kGoldenLabels[{BATCH}] = {{{', '.join(map(str, LABELS))}}};\n")
print("struct ModelGolden {")
print("  std::vector<std::size_t> hidden;  // none: softmax regression")
print("  bool mean, clip;")
print("  float spread;        // factor on the last weights")
print("  double loss;")
print("  unsigned correct;")
print("  unsigned vanished;   // examples below the clip")
print("  std::vector<double> probabilities;  // (batch, classes)")
print("  std::vector<std::vector<double>> gradients;  // per variable")
print("};\n")
print("inline const std::vector<ModelGolden>& ModelGoldens() {")
print("  static const std::vector<ModelGolden> goldens = {")
for hidden in ([], [4], [5, 3], [4, 6, 5]):
    for reduction, clip, spread in (
        ("sum", True, 1), ("mean", True, 16), ("sum", False, 16), ("mean", False, 1)
    ):
        loss, correct, vanished, p, gradients = run(hidden, reduction, clip, spread)
        flags = f"{str(reduction == 'mean').lower()}, {str(clip).lower()}, {spread}.f"
        widths = "{" + ", ".join(map(str, hidden)) + "}"
        print(f"      {{{widths}, {flags}, {float(loss)!r}, {correct}, {vanished}, {braces(p)},")
        print("       {" + ",\n        ".join(braces(g) for g in gradients) + "}},")
print("  };\n  return goldens;\n}\n\n}  // namespace passel")
