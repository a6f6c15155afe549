#!/usr/bin/env python3
"""Writes update_goldens.h: 20 updates of every optimizer, computed with NumPy in double precision.

The formulas are written down here a second time, from the definitions of TensorFlow 1.x's training
kernels and, for AdamW, from the paper, and share nothing with src/optim. Usage:  make_goldens.py > update_goldens.h
"""

import numpy as np

ELEMENTS = 67  # no multiple of a vector width; the last element is padding: w = 0, g = 0
STEPS = 20


def start():
    """w0[67]: multiples of 1/64, exact in float32. Every fifth element starts at 0."""
    i = np.arange(ELEMENTS)
    w = ((i * 29) % 67 - 33) / 64.0
    w[i % 5 == 0] = 0.0
    w[-1] = 0.0
    return w


def gradient(t):
    """g[67] of update t = 1, 2, ...: exact in float32; zeros, 2^-60 to 2^5, changing signs."""
    i = np.arange(ELEMENTS)
    size = (i * 37 + t * 101 + i * t * 17) % 257 - 128
    size[i % 11 == 3] = np.abs(size[i % 11 == 3])  # some never change sign
    size[i % 13 == 5] = 77  # some never change at all
    scale = np.array([-7.0, -10.0, -2.0, -20.0, -7.0, -4.0, -67.0, -7.0])[i % 8]
    g = size * 2.0**scale
    g[(i + t) % 6 == 0] = 0.0
    g[-1] = 0.0
    return g


def sgd(c):
    lr = c["learning_rate"]

    def update(w, slots, g, t):
        w -= lr * g

    return [], update


def momentum(c):
    lr, mu = c["learning_rate"], c["momentum"]

    def update(w, slots, g, t):
        (a,) = slots
        a[:] = a * mu + g
        w -= lr * g + lr * mu * a if c.get("use_nesterov") else lr * a

    return [0.0], update


def adagrad(c):
    lr = c["learning_rate"]

    def update(w, slots, g, t):
        (a,) = slots
        a += g**2
        w -= lr * g / np.sqrt(a)

    return [c["initial_accumulator"]], update


def rmsprop(c):
    lr, rho, mu = c["learning_rate"], c["rmsprop_decay"], c["rmsprop_momentum"]
    eps = c["rmsprop_epsilon"]
    if c.get("centered"):

        def centered(w, slots, g, t):
            ms, mg, mom = slots
            ms += (g**2 - ms) * (1 - rho)
            mg += (g - mg) * (1 - rho)
            mom[:] = mu * mom + lr * g / np.sqrt(ms - mg**2 + eps)
            w -= mom

        return [1.0, 0.0, 0.0], centered

    def plain(w, slots, g, t):
        ms, mom = slots
        ms += (g**2 - ms) * (1 - rho)
        mom[:] = mu * mom + lr * g / np.sqrt(ms + eps)
        w -= mom

    return [1.0, 0.0], plain


def adam(c):
    lr, b1, b2, eps = c["learning_rate"], c["adam_beta1"], c["adam_beta2"], c["adam_epsilon"]

    def update(w, slots, g, t):
        m, s = slots
        alpha = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
        m += (g - m) * (1 - b1)
        s += (g**2 - s) * (1 - b2)
        w -= alpha * m / (np.sqrt(s) + eps)

    return [0.0, 0.0], update


def adamw(c):
    lr, b1, b2, eps = c["learning_rate"], c["adam_beta1"], c["adam_beta2"], c["adam_epsilon"]
    decay = c["weight_decay"]

    def update(w, slots, g, t):
        m, v = slots
        m[:] = b1 * m + (1 - b1) * g
        v[:] = b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        w -= lr * decay * w
        w -= lr * m_hat / (np.sqrt(v_hat) + eps)

    return [0.0, 0.0], update


def ftrl(c):
    lr, p = c["learning_rate"], c["learning_rate_power"]
    l1, l2, shrinkage = c["l1"], c["l2"], c["l2_shrinkage"]

    def update(w, slots, g, t):
        n, z = slots
        new = n + g**2
        z += g + 2 * shrinkage * w - (new**-p - n**-p) / lr * w
        w[:] = np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (new**-p / lr + 2 * l2), 0.0)
        n[:] = new

    return [c["initial_accumulator"], 0.0], update


RMS = dict(rmsprop_momentum=0.0, rmsprop_decay=0.9, rmsprop_epsilon=1e-10)
ADAM = dict(adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8)
FTRL = dict(initial_accumulator=0.1, learning_rate_power=-0.5, l1=0.0, l2=0.0, l2_shrinkage=0.0)

# name, kind, formula, settings. Settings are in the order of the fields of OptimizerConfig.
VARIANTS = [
    ("Sgd", "kSgd", sgd, dict(learning_rate=0.1)),
    ("Momentum", "kMomentum", momentum, dict(learning_rate=0.05, momentum=0.9)),
    ("Nesterov", "kMomentum", momentum, dict(use_nesterov=1, learning_rate=0.05, momentum=0.9)),
    ("Adagrad", "kAdagrad", adagrad, dict(learning_rate=0.1, initial_accumulator=0.1)),
    ("AdagradFromOne", "kAdagrad", adagrad, dict(learning_rate=0.1, initial_accumulator=1.0)),
    ("RmsProp", "kRmsProp", rmsprop, dict(learning_rate=0.01) | RMS),
    (
        "RmsPropMomentum",
        "kRmsProp",
        rmsprop,
        dict(
            learning_rate=0.01, rmsprop_momentum=0.8, rmsprop_decay=0.7, rmsprop_epsilon=0.001
        ),
    ),
    (
        "RmsPropCentered",
        "kRmsProp",
        rmsprop,
        dict(centered=1, learning_rate=0.01) | RMS | dict(rmsprop_momentum=0.5),
    ),
    ("Adam", "kAdam", adam, dict(learning_rate=0.01) | ADAM),
    (
        "AdamOtherBetas",
        "kAdam",
        adam,
        dict(learning_rate=0.05, adam_beta1=0.5, adam_beta2=0.9, adam_epsilon=0.01),
    ),
    ("Ftrl", "kFtrl", ftrl, dict(learning_rate=0.1) | FTRL),
    ("FtrlL1L2", "kFtrl", ftrl, dict(learning_rate=0.1) | FTRL | dict(l1=0.05, l2=0.1)),
    (
        "FtrlShrinkage",
        "kFtrl",
        ftrl,
        dict(learning_rate=0.1) | FTRL | dict(l1=0.01, l2=0.1, l2_shrinkage=0.25),
    ),
    (
        "FtrlPower",
        "kFtrl",
        ftrl,
        dict(learning_rate=0.1) | FTRL | dict(learning_rate_power=-0.7, l1=0.02, l2=0.1),
    ),
    (
        "FtrlConstantRate",
        "kFtrl",
        ftrl,
        dict(learning_rate=0.1) | FTRL | dict(learning_rate_power=0.0),
    ),
    ("AdamW", "kAdamW", adamw, dict(learning_rate=0.01) | ADAM | dict(weight_decay=0.01)),
    (
        "AdamWOtherBetas",
        "kAdamW",
        adamw,
        dict(
            learning_rate=0.05, adam_beta1=0.5, adam_beta2=0.9, adam_epsilon=0.01, weight_decay=0.5
        ),
    ),
]


def run(formula, settings):
    """(w, slots) after STEPS updates."""
    initial, update = formula(settings)
    w = start()
    slots = [np.full(ELEMENTS, x) for x in initial]
    for t in range(1, STEPS + 1):
        update(w, slots, gradient(t), t)
    return w, slots


def braces(array):
    lines, line = [], "    "
    for x in array:
        text = f"{x:.11g}, "
        if len(line) + len(text) > 99:
            lines.append(line.rstrip())
            line = "    "
        line += text
    lines.append(line.rstrip(", "))
    return "{\n" + "\n".join(lines) + "}"


def write_rows(array, rows):
    """The definition of `array`: (name, kind, settings, w, slots) each."""
    print(f"inline constexpr Golden {array}[] = {{")
    for name, kind, settings, w, slots in rows:
        fields = [f".kind = OptimizerKind::{kind}"]
        fields += [f".{key} = {value}" for key, value in settings.items()]
        print(f'  {{"{name}",\n   {{' + ",\n    ".join(fields) + "},")
        print("   " + braces(w) + ",")
        print("   {" + ",\n    ".join(braces(s) for s in slots) + "}},")
    print("};\n\n}  // namespace passel")


def main():
    print("// Written by make_goldens.py; do not edit. 20 updates of 67 elements.")
    print("// clang-format off")
    print("#pragma once\n")
    print('#include "optim/optimizer.h"\n')
    print("namespace passel {\n")
    print(f"inline constexpr int kGoldenElements = {ELEMENTS};")
    print(f"inline constexpr int kGoldenSteps = {STEPS};\n")
    print("struct Golden {")
    print("  const char* name;")
    print("  OptimizerConfig config;")
    print("  double values[kGoldenElements];")
    print("  double slots[kMaxSlots][kGoldenElements];")
    print("};\n")
    rows = []
    for name, kind, formula, settings in VARIANTS:
        rows.append((name, kind, settings, *run(formula, settings)))
    write_rows("kGoldens", rows)


if __name__ == "__main__":
    main()
