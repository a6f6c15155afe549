"""A character-level GPT in rounds: passel run --workers 2 -- python tiny_gpt.py

Its text is sums of two numbers, "17+5=22", which it learns to write.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import passel.torch

SIGNS = "0123456789+=\n"
CONTEXT, WIDTH, HEADS, LAYERS = 32, 64, 4, 2


def text(sums, seed):
    numbers = torch.randint(10, (sums, 2), generator=torch.Generator().manual_seed(seed)).tolist()
    return "".join(f"{a}+{b}={a + b}\n" for a, b in numbers)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.three, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.three(self.before(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.mlp(self.between(x))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sign, self.place = torch.nn.Embedding(len(SIGNS), WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.out = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, len(SIGNS), bias=False)
        self.out.weight = self.sign.weight  # tied

    def forward(self, x):
        return self.out(self.norm(self.blocks(self.sign(x) + self.place.weight[:x.shape[1]])))

    @torch.no_grad()
    def write(self, begin, signs):
        line = [SIGNS.index(each) for each in begin]
        for _ in range(signs):
            line.append(self(torch.tensor([line[-CONTEXT:]]))[0, -1].argmax().item())
        return "".join(SIGNS[each] for each in line)


def train(steps, batch):
    torch.manual_seed(1)
    model = Gpt()
    torch.nn.init.normal_(model.sign.weight, std=0.1)
    data = torch.tensor([SIGNS.index(each) for each in text(5000, 1)])
    with passel.torch.share(model, "adamw", lr=3e-3, mode="barrier") as opt:
        torch.manual_seed(opt.job.rank)
        loss = None  # who comes late may find nothing to do
        while opt.job.global_step < steps and not opt.job.stopped:
            begins = torch.randint(len(data) - CONTEXT - 1, (batch, 1))
            rows = data[begins + torch.arange(CONTEXT + 1)]
            opt.zero_grad()
            loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.metric(loss=loss.item())
        if opt.job.is_chief:
            if loss is not None:
                print(f"loss {loss.item():.3f}")
            print(model.write("1+1=2\n2+3=", 16), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32, help="of each worker")
    train(**vars(parser.parse_args()))
