"""A PyTorch model whose parameters several processes train together.

    opt = passel.torch.share(model, optimizer="adam", lr=1e-3, mode="hogwild")

joins the job and returns an optimizer: zero_grad(), backward(), step() as ever.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("passel.torch needs PyTorch, which this Python does not have: pip install torch",
                              name="torch") from None

from ._optimizer import SharedOptimizer
from ._share import share

__all__ = ["SharedOptimizer", "share"]
