"""MNIST by Hogwild with torch.multiprocessing alone: python mnist_hogwild_plain.py [STEPS] [WORKERS]"""

import sys

import torch
import torch.multiprocessing

import passel.digits

STEPS, WORKERS = (int(given) for given in [*sys.argv[1:], *["4000", "2"][len(sys.argv) - 1:]])


def load(part):
    pictures, labels = passel.digits.load(part)
    return torch.from_numpy(pictures), torch.tensor(labels, dtype=torch.long)


def train(rank, model):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, labels = load("train")
    for _ in range(STEPS // WORKERS):
        rows = torch.randint(len(x), (100,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
        optimizer.step()


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    model.share_memory()
    torch.multiprocessing.spawn(train, (model,), WORKERS)
    x, labels = load("t10k")
    with torch.no_grad():
        print(f"accuracy {(model(x).argmax(dim=1) == labels).float().mean():.4f}")


if __name__ == "__main__":
    main()
