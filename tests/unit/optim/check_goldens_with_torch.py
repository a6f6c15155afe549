#!/usr/bin/env python3
"""Whether the goldens of make_goldens.py are what PyTorch makes of the same updates, in double precision.

For the optimizers that PyTorch defines. Needs PyTorch (written with 2.15), which nothing else here
does, so no test runs this: run it when a formula of make_goldens.py changes.
"""

import torch

import make_goldens as goldens

# Kind: the class, its arguments by the fields of OptimizerConfig, and its slots.
CLASSES = {
    "kAdamW": (
        torch.optim.AdamW,
        lambda c: dict(
            lr=c["learning_rate"],
            betas=(c["adam_beta1"], c["adam_beta2"]),
            eps=c["adam_epsilon"],
            weight_decay=c["weight_decay"],
        ),
        ("exp_avg", "exp_avg_sq"),
    ),
}


def run(kind, settings):
    """(w, slots) after goldens.STEPS updates."""
    optimizer_class, arguments, slots = CLASSES[kind]
    w = torch.nn.Parameter(torch.tensor(goldens.start(), dtype=torch.float64))
    optimizer = optimizer_class([w], **arguments(settings))
    for t in range(1, goldens.STEPS + 1):
        w.grad = torch.tensor(goldens.gradient(t), dtype=torch.float64)
        optimizer.step()
    return w.detach(), [optimizer.state[w][slot] for slot in slots]


def main():
    for name, kind, formula, settings in goldens.VARIANTS:
        if kind not in CLASSES:
            continue
        w, slots = run(kind, settings)
        ours, our_slots = goldens.run(formula, settings)
        for theirs, mine in zip([w, *slots], [ours, *our_slots]):
            mine = torch.tensor(mine, dtype=torch.float64)
            torch.testing.assert_close(theirs, mine, rtol=1e-12, atol=1e-30)
        print(f"{name}: the same within 1e-12 after {goldens.STEPS} updates by torch {torch.__version__}")


if __name__ == "__main__":
    main()
