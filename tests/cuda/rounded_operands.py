#!/usr/bin/env python3
"""How far gradients of a network move when the operands of its products are rounded.

    rounded_operands.py

Prints, for the large networks of gpu_step_test.cc, the relative error (Frobenius) of each variable's
gradient with operands of 10 (TF32) and 7 (bfloat16) mantissa bits, against double precision. Most of
it is not the products' own: units near 0 fall on the other side of their ReLU. The tolerances of
gpu_step_test.cc are a few times the largest of these numbers.
"""

import numpy as np

NETWORKS = (((784, 1024, 10), 256), ((784, 1024, 1024, 10), 16), ((784, 513, 520, 1100, 250), 9))


def rounded(x, bits):
    if bits is None:
        return x
    mantissa, exponent = np.frexp(x)
    scale = 2.0 ** (bits + 1)
    return np.ldexp(np.round(mantissa * scale) / scale, exponent)


def gradient(weights, biases, images, labels, bits):
    def product(a, b):
        return rounded(a, bits) @ rounded(b, bits)

    values = [images]
    for layer, (w, b) in enumerate(zip(weights, biases)):
        z = product(values[-1], w) + b
        values.append(np.maximum(z, 0) if layer + 1 < len(weights) else z)
    p = np.exp(values[-1] - values[-1].max(1, keepdims=True))
    delta = p / p.sum(1, keepdims=True)
    delta[np.arange(len(labels)), labels] -= 1
    result = []
    for layer in reversed(range(len(weights))):
        result[:0] = [product(values[layer].T, delta), delta.sum(0)]
        if layer > 0:
            delta = product(delta, weights[layer].T) * (values[layer] > 0)
    return result


def main():
    random = np.random.default_rng(1)
    for widths, batch in NETWORKS:
        pairs = list(zip(widths, widths[1:]))
        weights = [random.normal(size=pair) / np.sqrt(pair[0]) for pair in pairs]
        biases = [random.normal(size=pair[1]) / np.sqrt(pair[0]) for pair in pairs]
        images = random.integers(0, 256, (batch, widths[0])) / 255
        labels = random.integers(0, widths[-1], batch)
        wanted = gradient(weights, biases, images, labels, None)
        for name, bits in (("TF32", 10), ("bfloat16", 7)):
            got = gradient(weights, biases, images, labels, bits)
            errors = [np.linalg.norm(g - w) / np.linalg.norm(w) for g, w in zip(got, wanted)]
            print("-".join(map(str, widths)), f"batch {batch}, {name}:",
                  " ".join(f"{error:.1e}" for error in errors))


if __name__ == "__main__":
    main()
