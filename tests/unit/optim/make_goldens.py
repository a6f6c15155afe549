#!/usr/bin/env python3
"""Prints goldens for update_kernels_test.cc: 20 updates of every optimizer, in double precision.

The formulas are written down here a second time, from the definitions of TensorFlow 1.x's training
kernels and, for AdamW, from the paper, and share nothing with src/optim. The build runs this.
"""

from math import copysign, sqrt

ELEMENTS = 67  # no multiple of a vector width; the last element is padding: w = 0, g = 0
STEPS = 20
SCALES = [-7, -10, -2, -20, -7, -4, -67, -7]


def start():
    """w0[67]: multiples of 1/64, exact in float32. Every fifth element starts at 0."""
    w = [((i * 29) % 67 - 33) / 64.0 if i % 5 else 0.0 for i in range(ELEMENTS)]
    w[-1] = 0.0
    return w


def gradient(t):
    """g[67] of update t = 1, 2, ...: exact in float32; zeros, 2^-60 to 2^5, changing signs."""
    g = []
    for i in range(ELEMENTS):
        size = (i * 37 + t * 101 + i * t * 17) % 257 - 128
        if i % 11 == 3:
            size = abs(size)  # some never change sign
        if i % 13 == 5:
            size = 77  # some never change at all
        zero = (i + t) % 6 == 0 or i == ELEMENTS - 1
        g.append(0.0 if zero else size * 2.0 ** SCALES[i % 8])
    return g


# Each formula gives what the slots begin with, and the update of one element: the new value, and
# its slots.


def sgd(c):
    return [], lambda w, slots, g, t: (w - c["learning_rate"] * g, [])


def momentum(c):
    lr, mu = c["learning_rate"], c["momentum"]

    def update(w, slots, g, t):
        a = slots[0] * mu + g
        return w - (lr * g + lr * mu * a if c.get("use_nesterov") else lr * a), [a]

    return [0.0], update


def adagrad(c):
    def update(w, slots, g, t):
        a = slots[0] + g**2
        return w - c["learning_rate"] * g / sqrt(a), [a]

    return [c["initial_accumulator"]], update


def rmsprop(c):
    lr, rho, mu = c["learning_rate"], c["rmsprop_decay"], c["rmsprop_momentum"]
    eps = c["rmsprop_epsilon"]

    def centered(w, slots, g, t):
        ms, mg, mom = slots
        ms += (g**2 - ms) * (1 - rho)
        mg += (g - mg) * (1 - rho)
        mom = mu * mom + lr * g / sqrt(ms - mg**2 + eps)
        return w - mom, [ms, mg, mom]

    def plain(w, slots, g, t):
        ms, mom = slots
        ms += (g**2 - ms) * (1 - rho)
        mom = mu * mom + lr * g / sqrt(ms + eps)
        return w - mom, [ms, mom]

    return ([1.0, 0.0, 0.0], centered) if c.get("centered") else ([1.0, 0.0], plain)


def adam(c):
    lr, b1, b2, eps = c["learning_rate"], c["adam_beta1"], c["adam_beta2"], c["adam_epsilon"]

    def update(w, slots, g, t):
        m, s = slots
        alpha = lr * sqrt(1 - b2**t) / (1 - b1**t)
        m += (g - m) * (1 - b1)
        s += (g**2 - s) * (1 - b2)
        return w - alpha * m / (sqrt(s) + eps), [m, s]

    return [0.0, 0.0], update


def adamw(c):
    lr, b1, b2, eps = c["learning_rate"], c["adam_beta1"], c["adam_beta2"], c["adam_epsilon"]
    decay = c["weight_decay"]

    def update(w, slots, g, t):
        m = b1 * slots[0] + (1 - b1) * g
        v = b2 * slots[1] + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        w -= lr * decay * w
        return w - lr * m_hat / (sqrt(v_hat) + eps), [m, v]

    return [0.0, 0.0], update


def ftrl(c):
    lr, p = c["learning_rate"], c["learning_rate_power"]
    l1, l2, shrinkage = c["l1"], c["l2"], c["l2_shrinkage"]

    def update(w, slots, g, t):
        n, z = slots
        new = n + g**2
        z += g + 2 * shrinkage * w - (new**-p - n**-p) / lr * w
        if abs(z) <= l1:
            return 0.0, [new, z]
        return (copysign(l1, z) - z) / (new**-p / lr + 2 * l2), [new, z]

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
    elements = [(w, initial) for w in start()]
    for t in range(1, STEPS + 1):
        elements = [update(w, slots, g, t) for (w, slots), g in zip(elements, gradient(t))]
    return [w for w, _ in elements], [list(slot) for slot in zip(*(s for _, s in elements))]


def braces(array):
    return "{" + ", ".join(map(repr, array)) + "}"


def main():
    print("namespace passel {\n")
    print("struct Golden {")
    print("  const char* name;")
    print("  OptimizerConfig config;")
    print(f"  double values[{ELEMENTS}];")
    print(f"  double slots[kMaxSlots][{ELEMENTS}];")
    print("};\n")
    print(f"inline constexpr int kGoldenElements = {ELEMENTS}, kGoldenSteps = {STEPS};\n")
    print("inline constexpr Golden kGoldens[] = {")
    for name, kind, formula, settings in VARIANTS:
        fields = [f".kind = OptimizerKind::{kind}"]
        fields += [f".{key} = {value}" for key, value in settings.items()]
        w, slots = run(formula, settings)
        print(f'  {{"{name}", {{{", ".join(fields)}}},')
        print(f"   {braces(w)},\n   {{{', '.join(map(braces, slots))}}}}},")
    print("};\n\n}  // namespace passel")


if __name__ == "__main__":
    main()
