#!/usr/bin/env python3
"""torch_cuda - what opt.step() of passel.torch costs for a model on a CUDA device, beside PyTorch's own.

One line of JSON for each size: medians of microseconds of whole steps, each waited for. Needs PyTorch with a
CUDA device, and the package passel (PYTHONPATH=build/release/python); docs/torch.md has what one card gave.
"""

import json
import statistics
import sys
import time

import torch

import passel.torch

SIZES = {"80 K": [784, 100, 10], "1.9 M": [784, 1024, 1024, 10], "24 M": [784, 4096, 4096, 1024, 10]}
LARGE = 10_000_000  # parameters, of which fewer steps are enough


def mlp(widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def median_us(step, count):
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return round(statistics.median(times), 1)


def measure(name, widths):
    torch.manual_seed(1)
    device = torch.device("cuda")
    x, y = torch.rand(100, 784, device=device), torch.randint(0, 10, (100,), device=device)
    loss = torch.nn.CrossEntropyLoss()

    def passes(model):
        loss(model(x), y).backward()

    model = mlp(widths).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    count = 60 if parameters > LARGE else 300
    found = {"size": name, "parameters": parameters, "device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def alone():
        model.zero_grad()
        passes(model)

    found["passes alone"] = median_us(alone, count)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def own():
        adam.zero_grad()
        passes(model)
        adam.step()

    found["torch.optim.Adam"] = median_us(own, count)
    on_device, pinned = torch.empty(parameters, device=device), torch.empty(parameters, pin_memory=True)

    def there_and_back():
        on_device.copy_(pinned, non_blocking=True)
        pinned.copy_(on_device, non_blocking=True)

    found["copies there and back"] = median_us(there_and_back, count)
    for optimizer in ("sgd", "adam"):
        shared = mlp(widths).to(device)
        with passel.torch.share(shared, optimizer=optimizer, lr=1e-3, mode="hogwild") as opt:

            def step(model=shared, opt=opt):
                opt.zero_grad()
                passes(model)
                opt.step()

            found[f"passel, {optimizer}"] = median_us(step, count)
    return found


def main():
    if not torch.cuda.is_available():
        print("torch_cuda: PyTorch finds no CUDA device here", file=sys.stderr)
        return 3
    for name, widths in SIZES.items():
        print(json.dumps(measure(name, widths)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
