"""torch_hogwild - the MNIST job by PyTorch Hogwild: parameters in share_memory(), one process a
worker, one thread each, each with an Adam of its own (its slots are private, as PyTorch has it).

Prints one JSON object: {"steps_per_second": ..., "accuracy": ..., "steps": ..., "detail": ...}.
Run by bench/peers/run in the environment that bench/peers/setup made; exits 1 when it fails.
"""

import argparse
import json
import os
import signal
import sys
import time

import numpy as np
import torch
import torch.multiprocessing as mp

import mnist


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))


def make_optimizer(model, rate):
    # The fused form where this release has it for CPUs: the fastest it offers.
    try:
        return torch.optim.Adam(model.parameters(), lr=rate, fused=True), "fused Adam"
    except (RuntimeError, TypeError):
        return torch.optim.Adam(model.parameters(), lr=rate), "Adam"


def work(index, model, flags, gate, spans, cpu):
    mnist.end_with_parent()
    torch.set_num_threads(1)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    images, labels = mnist.load(flags.data_dir, "train")
    images = torch.from_numpy(images)
    labels = torch.from_numpy(labels.astype(np.int64))
    optimizer, _ = make_optimizer(model, flags.learning_rate)
    loss_of = torch.nn.CrossEntropyLoss()
    random = np.random.default_rng(index + 1)
    batches = mnist.batches(random, len(images), flags.batch_size)
    mine = flags.steps // flags.workers

    def step():
        rows = torch.from_numpy(next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()

    step()  # the first one allocates
    gate.wait(timeout=60)
    begin = time.monotonic()
    for _ in range(mine):
        step()
    spans[2 * index] = begin
    spans[2 * index + 1] = time.monotonic()


def main():
    flags = mnist.parse(argparse.ArgumentParser(description=__doc__))
    signal.alarm(flags.limit)
    torch.set_num_threads(1)
    model = make_model()
    model.share_memory()
    context = mp.get_context("fork")
    gate = context.Barrier(flags.workers)
    spans = context.Array("d", 2 * flags.workers)
    workers = []
    for index in range(flags.workers):
        worker = context.Process(
            target=work, args=(index, model, flags, gate, spans, mnist.cpu_of(flags, index)))
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join()  # bounded by the alarm
        if worker.exitcode != 0:
            sys.exit(f"torch_hogwild: a worker ended with {worker.exitcode}")
    seconds = max(spans[1::2]) - min(spans[0::2])
    steps = flags.steps // flags.workers * flags.workers
    images, labels = mnist.load(flags.data_dir, "t10k")
    with torch.no_grad():
        guess = model(torch.from_numpy(images)).argmax(dim=1).numpy()
    print(json.dumps({
        "steps_per_second": steps / seconds, "accuracy": float((guess == labels).mean()),
        "steps": steps,
        "detail": f"torch {torch.__version__}, {make_optimizer(make_model(), 0.1)[1]}"}))


if __name__ == "__main__":
    main()
