"""Small models, and how they are trained, for the tests of passel.torch."""

import torch

MODES = ["hogwild", "barrier"]
X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randn(32, 3, generator=torch.Generator().manual_seed(2))


def make(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def loss_of(model, dtype=torch.float32):
    return torch.nn.functional.mse_loss(model(X.to(dtype)), Y.to(dtype))


def train(model, optimizer, steps, *, scheduler=None, clip=None, dtype=torch.float32):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, dtype).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def difference(model, other):
    return max((a.detach().double() - b.detach().double()).abs().max().item()
               for a, b in zip(model.parameters(), other.parameters()))


def in_arena(opt, model):
    """Addresses: values of all parameters are arrays of the job, and it has no gradients."""
    values = {array.__array_interface__["data"][0] for array in opt.job._values.values()}
    return all(p.data_ptr() in values and p.grad is None for p in model.parameters())


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
}


class Odd(torch.nn.Module):
    """Tied, frozen and unused parameters, a scalar, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.out = torch.nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.out(self.norm(self.embed(x)) * self.scale * self.frozen)
