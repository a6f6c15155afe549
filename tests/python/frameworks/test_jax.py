"""passel.jax: numbers, copies, what is refused."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import passel
import passel.jax

FIRST = {"layers": [{"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}], "scale": jnp.asarray(2.0)}


def test_a_tree_is_pulled_and_pushed():
    with passel.jax.share(FIRST, "sgd", lr=0.5, mode="barrier") as shared:
        assert shared.job.variables == {"layers.0.b": (2,), "layers.0.w": (3, 2), "scale": ()}
        before = shared.pull()
        assert jax.tree_util.tree_structure(before) == jax.tree_util.tree_structure(FIRST)
        kept = jax.tree_util.tree_map(np.array, before)
        gradients = jax.tree_util.tree_map(lambda leaf: 2 * jnp.ones_like(leaf), before)
        for step in range(1, 4):
            assert shared.push(gradients).global_step == step
            after = shared.pull()
        for leaf, copy, now in zip(*map(jax.tree_util.tree_leaves, (before, kept, after))):
            assert np.array_equal(leaf, copy)  # JAX's arrays never change
            assert np.array_equal(now, copy - 3)


@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
def test_what_was_pulled_is_no_memory_of_the_job(mode):
    with passel.jax.share({"w": jnp.zeros(1024)}, "sgd", lr=1.0, mode=mode) as shared:
        trees = []
        for _ in range(4):
            trees.append(shared.pull())
            shared.push({"w": jnp.ones(1024)})
        assert [float(tree["w"][5]) for tree in trees] == [0, -1, -2, -3]


@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
@pytest.mark.parametrize("elements", [1 << 10, 1 << 20])
def test_what_was_pulled_is_of_then_while_jax_is_busy(mode, elements):
    heavy = jax.jit(lambda x: sum(jnp.sin(x + i).sum() for i in range(40)))
    x, gradients = jnp.ones(1 << 21), {"w": -np.ones(elements, np.float32)}
    heavy(x).block_until_ready()
    with passel.jax.share({"w": jnp.zeros(elements)}, "sgd", lr=1.0, mode=mode) as shared:
        for step in range(4):
            running = heavy(x)
            tree = shared.pull()
            shared.push(gradients)
            shared.job.pull("copy")
            assert float(tree["w"].min()) == float(tree["w"].max()) == step
            running.block_until_ready()


def test_what_cannot_be_is_said_in_one_sentence():
    bad = passel.InvalidArgument
    with pytest.raises(bad, match="'w' is of key<.*: keep random keys out of params"):
        passel.jax.share({"w": jax.random.key(0)})
    with pytest.raises(bad, match="the leaf 'w' is of bfloat16, and passel trains float32"):
        passel.jax.share({"w": jnp.zeros(3, jnp.bfloat16)})
    with pytest.raises(bad, match="the leaf 'w' is of float, and"):
        passel.jax.share({"w": 3.0})
    with pytest.raises(bad, match="params has no leaf"):
        passel.jax.share({})
    with pytest.raises(bad, match="calls the learning rate lr"):
        passel.jax.share(FIRST, learning_rate=0.1)
    with passel.jax.share(FIRST) as shared:
        shared.pull()
        with pytest.raises(bad, match=r"push\(\) takes gradients of the structure of the parameters"):
            shared.push({"scale": jnp.zeros(())})
        with pytest.raises(bad, match=r"'layers.0.w' has the shape \(2, 2\)"):
            shared.push({"layers": [{"w": jnp.zeros((2, 2)), "b": jnp.zeros(2)}], "scale": jnp.zeros(())})


def test_the_example_learns(examples, digits):
    done = subprocess.run([passel.program(), "run", "--workers=2", "--", sys.executable, str(examples / "jax_mlp.py"), "600"],
                          env={**os.environ, "PASSEL_DATA_DIR": str(digits)}, text=True, capture_output=True, check=True,
                          timeout=240)
    assert float(re.search(r"accuracy ([\d.]+)", done.stdout)[1]) > 0.85
