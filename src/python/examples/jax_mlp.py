"""A multilayer perceptron on MNIST in JAX: passel run --workers 2 -- python jax_mlp.py [STEPS]"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import passel.digits
import passel.jax

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000


def first_values(random):
    return [{"w": jnp.asarray(random.normal(0, n**-0.5, (n, m)), jnp.float32), "b": jnp.zeros(m)}
            for n, m in ((784, 100), (100, 10))]


def look(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
@jax.value_and_grad
def loss_of(params, x, labels):
    return -jnp.mean(jax.nn.log_softmax(look(params, x))[jnp.arange(len(labels)), labels])


x, labels = passel.digits.load("train")
with passel.jax.share(first_values(np.random.default_rng(1)), "adam", lr=1e-3) as shared:
    random = np.random.default_rng(shared.job.rank)
    while shared.job.global_step < STEPS and not shared.job.stopped:
        rows = random.integers(len(x), size=100)
        loss, gradients = loss_of(shared.pull(), x[rows], labels[rows])
        shared.push(gradients)
        shared.job.metric(loss=float(loss))
    params = shared.pull()
if shared.job.is_chief:
    x, labels = passel.digits.load("t10k")
    print(f"accuracy {np.mean(look(params, x).argmax(axis=1) == labels):.4f}")
