#!/usr/bin/env python3
"""Finds the polynomial of Exp() in src/compute/cpu_kernels_isa.cc.

exp(r) = 1 + r + r^2 q(r) for |r| <= ln 2 / 2, q of degree 4 with the least relative error
(Lawson's iteration on a weighted least-squares fit). Prints the largest relative error before
rounding and the coefficients, lowest power first, as hexadecimal float32.
"""

import numpy as np

DEGREE = 4
HALF = np.log(2) / 2 * 1.0005  # r is rounded: a little beyond ln 2 / 2

r = np.cos(np.pi * (np.arange(4001) + 0.5) / 4001) * HALF
r = r[np.abs(r) > 1e-4]
matrix = np.vander(r, DEGREE + 1, increasing=True) * (r**2 / np.exp(r))[:, None]
target = (np.exp(r) - 1 - r) / np.exp(r)
weight = np.ones_like(r)
for _ in range(300):
    root = np.sqrt(weight)
    q, *_ = np.linalg.lstsq(matrix * root[:, None], target * root, rcond=None)
    error = np.abs(matrix @ q - target)
    weight *= error
    weight /= weight.sum()

print(f"largest relative error {error.max():.2e}")
for coefficient in q:
    print(float(np.float32(coefficient)).hex())
