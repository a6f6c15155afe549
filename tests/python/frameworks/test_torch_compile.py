"""passel.torch and torch.compile with its default backend, which has g++ compile what it makes of the model."""

import re
import shutil

import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed, and torch.compile needs it")

# Values and gradients lie elsewhere after each change of the mode, and a compiled model that went on with those of
# before would train nothing. What is compiled is not compiled again for that.
SCRIPT = """
    import copy, sys
    import torch
    import passel.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 3, bias=False), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(24, 3))
    x, y = torch.randn(16, 2, 8), torch.randn(16, 3)
    other = copy.deepcopy(model).double()
    def loss_of(net, x, y):
        return torch.nn.functional.mse_loss(net(x), y)

    with passel.torch.share(model, "adamw", lr=0.01, mode="barrier", pull=sys.argv[1], mode_schedule=sys.argv[2]) as opt:
        compiled = torch.compile(model)
        places = set()
        for _ in range(18):
            opt.zero_grad()
            loss_of(compiled, x, y).backward()
            opt.step()
            places.add(tuple(p.data_ptr() for p in model.parameters()))
        assert opt.job.global_step == 18, opt.job.global_step
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, torch._dynamo.utils.counters

    plain = torch.optim.AdamW(other.parameters(), lr=0.01)
    for _ in range(18):
        plain.zero_grad()
        loss_of(other, x.double(), y.double()).backward()
        plain.step()
    worst = max((p.detach() - q.detach()).abs().max().item() for p, q in zip(model.state_dict().values(), other.state_dict().values()))
    print("places", len(places), "worst", worst, flush=True)
    """


def compiled(start, tmp_path, *arguments, run=None):
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}  # so that it is compiled here
    out = start(SCRIPT, *arguments, run=run, env=cache).end().out
    return [(int(places), float(worst)) for places, worst in re.findall(r"places (\d+) worst (\S+)", out)]


@pytest.mark.parametrize("pull", ["auto", "view"])
def test_a_compiled_model_trains_as_one_that_is_not(start, tmp_path, pull):
    ((places, worst),) = compiled(start, tmp_path, pull, "6:hogwild,12:barrier")
    assert worst < 1e-4 and places == (2 if pull == "auto" else 1)


def test_compiled_models_of_several_workers_train_as_one_that_is_not(start, tmp_path):
    found = compiled(start, tmp_path, "auto", "", run=["--workers=2"])
    assert len(found) == 2 and all(worst < 1e-4 for _, worst in found), found
