"""MNIST by Hogwild with passel: passel run --workers 2 -- python mnist_hogwild.py [STEPS] [WORKERS]"""

import os
import sys

import torch

import passel.digits
import passel.torch

STEPS, WORKERS = (int(given) for given in [*sys.argv[1:], *["4000", "2"][len(sys.argv) - 1:]])


def load(part):
    pictures, labels = passel.digits.load(part)
    return torch.from_numpy(pictures), torch.tensor(labels, dtype=torch.long)


def train(rank, model):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    optimizer = passel.torch.share(model, "adam", lr=1e-3, mode="hogwild")
    x, labels = load("train")
    for _ in range(STEPS // WORKERS):
        rows = torch.randint(len(x), (100,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
        optimizer.step()


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    train(int(os.environ.get("RANK", 0)), model)
    x, labels = load("t10k")
    with torch.no_grad():
        print(f"accuracy {(model(x).argmax(dim=1) == labels).float().mean():.4f}")


if __name__ == "__main__":
    main()
