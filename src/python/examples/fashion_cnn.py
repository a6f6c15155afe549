"""A convolutional network on Fashion-MNIST: passel run --workers 2 -- python fashion_cnn.py --data FOLDER

Batch norm, AdamW with a schedule, checkpoints. FOLDER has the four IDX files; without --data it is MNIST where that is,
else digits that passel draws.
"""

import argparse

import torch

import passel.digits
import passel.torch


def load(part, folder):
    pictures, labels = passel.digits.load(part, folder)
    return torch.from_numpy(pictures).view(-1, 1, 28, 28), torch.tensor(labels, dtype=torch.long)


def make_model():
    def block(before, after):
        return (torch.nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), torch.nn.BatchNorm2d(after),
                torch.nn.ReLU())
    return torch.nn.Sequential(*block(1, 16), *block(16, 32), torch.nn.Flatten(), torch.nn.Linear(32 * 49, 10))


def groups(model):
    """Weights decay; biases and batch norms do not."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]


def accuracy(model, x, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(x[k:k + 1000]).argmax(dim=1) == labels[k:k + 1000]).sum().item() for k in range(0, len(x), 1000))
    model.train()
    return right / len(x)


def train(data, steps, batch, mode, checkpoints):
    torch.manual_seed(1)
    model = make_model()
    x, labels = load("train", data)
    with passel.torch.share(model, "adamw", lr=3e-3, params=groups(model), mode=mode, checkpoint_dir=checkpoints) as opt:
        opt.follow(torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3e-3, total_steps=steps + 100, cycle_momentum=False))
        for numbers in opt.job.sampler(len(x), batch):
            if opt.job.global_step >= steps:
                break
            rows = torch.tensor(numbers)
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[rows]), labels[rows])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.metric(loss=loss.item())
        if opt.job.is_chief:
            print(f"accuracy {accuracy(model, *load('t10k', data)):.4f} after {opt.job.global_step} updates", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=3000, help="updates of all workers together")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--mode")
    parser.add_argument("--checkpoints", help="a folder; a job that is started again goes on from there")
    train(**vars(parser.parse_args()))
