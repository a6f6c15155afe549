"""A JAX model whose parameters several processes train together.

    shared = passel.jax.share(params, optimizer="adam", lr=1e-3)
    while not shared.job.stopped:
        loss, gradients = value_and_grad(shared.pull(), batch)
        shared.push(gradients)
"""

from typing import Any

import numpy as np

from ._errors import InvalidArgument
from ._job import Job, Outcome, join

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as _error:
    if _error.name not in ("jax", "jaxlib"):
        raise
    raise ModuleNotFoundError("passel.jax needs JAX, which this Python does not have: pip install jax",
                              name=_error.name) from None


class SharedTree:
    """The leaves of a pytree as variables of a job; of share(). One thread at a time."""

    def __init__(self, job: Job, names: list[str], structure: Any) -> None:
        self.job = job
        """The job that share() has joined."""
        self._names = names
        self._structure = structure

    def pull(self) -> Any:
        """The values of now, as arrays of JAX that nobody changes: copies, since JAX takes its arrays for constant."""
        values = self.job.pull("view" if self._is_stable() else "copy")
        # JAX may look at memory of NumPy later than when it is given it, also for a copy.
        return jax.tree_util.tree_unflatten(self._structure, [jnp.asarray(np.array(values[name])) for name in self._names])

    def push(self, gradients: Any, timeout: float | None = None) -> Outcome:
        """Hands in a gradient for each leaf, and waits for the update."""
        leaves, structure = jax.tree_util.tree_flatten(gradients)
        if structure != self._structure:
            raise InvalidArgument(f"push() takes gradients of the structure of the parameters, {self._structure}, not "
                                  f"{structure}: give that")
        return self.job.step(dict(zip(self._names, map(np.asarray, leaves))), timeout)

    def __enter__(self) -> "SharedTree":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        return self.job.__exit__(kind, error, trace)

    def _is_stable(self) -> bool:
        return self.job.mode in ("barrier", "replicas")


def share(params: Any, optimizer: str = "adamw", lr: float = 1e-3, *, timeout: float | None = None, **settings: Any) -> SharedTree:
    """Joins a job whose variables are the leaves of the pytree `params`, by the names of their paths.

    optimizer: one of passel's own, with its settings (docs/optimizers.md); for all else as passel.join(). Raises an
    Error of passel for leaves that are not of float32.
    """
    if "learning_rate" in settings:
        raise InvalidArgument("share() calls the learning rate lr: give that")
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    if not leaves:
        raise InvalidArgument("params has no leaf: share() has nothing to train")
    first: dict[str, Any] = {}
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
        if not hasattr(leaf, "dtype") or leaf.dtype != np.float32:
            what = getattr(leaf, "dtype", type(leaf).__name__)
            fix = "keep random keys out of params" if _is_key(leaf) else "give it .astype(jnp.float32)"
            raise InvalidArgument(f"the leaf {name!r} is of {what}, and passel trains float32: {fix}")
        if name in first:
            raise InvalidArgument(f"two leaves have the name {name!r}: use other keys")
        first[name] = np.ascontiguousarray(np.asarray(leaf)).reshape(leaf.shape)
    job = join(first, timeout=timeout, optimizer=optimizer, learning_rate=lr, **settings)
    return SharedTree(job, list(first), structure)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
