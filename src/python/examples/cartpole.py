"""Four actors balance poles by the live policy, one learner trains it: python cartpole.py

The cart and its pole are those of A. G. Barto, R. S. Sutton and C. W. Anderson, "Neuronlike adaptive
elements that can solve difficult learning control problems", IEEE Transactions on Systems, Man, and
Cybernetics SMC-13, 1983, without friction, in Euler steps of 20 ms as in Sutton's pole.c
(incompleteideas.net/sutton/book/code/pole.c).
"""

import argparse
import collections
import multiprocessing
import multiprocessing.connection

import numpy as np

import passel

ACTORS, POLES, HIDDEN, LONGEST = 4, 8, 32, 200  # poles of each actor; steps of an episode
SCALE = np.array([1 / 2.4, 1 / 2, 1 / 0.21, 1 / 2], np.float32)  # of position, speed, angle, angular speed
VARIABLES = {"hid_w": (4, HIDDEN), "hid_b": HIDDEN, "out_w": (HIDDEN, 2), "out_b": 2}


def move(state, right):
    """One step of the carts; true for those that have lost their pole or left the track."""
    x, speed, angle, turn = state.T
    gravity, cart, pole, half_length, force = 9.8, 1.0, 0.1, 0.5, np.where(right, 10.0, -10.0)
    sine, cosine, mass = np.sin(angle), np.cos(angle), cart + pole
    push = (force + pole * half_length * turn**2 * sine) / mass
    turning = (gravity * sine - cosine * push) / (half_length * (4 / 3 - pole * cosine**2 / mass))
    state += 0.02 * np.stack([speed, push - pole * half_length * turning * cosine / mass, turn, turning], axis=1)
    return (np.abs(state[:, 0]) > 2.4) | (np.abs(state[:, 2]) > np.radians(12))


def look(values, seen):
    """Hidden layer; probability of a push to the right, and the return that is expected."""
    hidden = np.tanh(seen @ values["hid_w"] + values["hid_b"])
    out = hidden @ values["out_w"] + values["out_b"]
    return hidden, 1 / (1 + np.exp(-out[..., 0])), out[..., 1]


def act(job, seed, trajectories):
    """An actor: plays by the values of now, says what it saw and did, waits for other values."""
    random = np.random.default_rng(seed)
    try:
        with passel.attach(job) as reader:
            while True:
                version = reader.read().global_step
                seen = np.zeros((LONGEST, POLES, 4), np.float32)
                right, alive = np.zeros((2, LONGEST, POLES), bool)
                state, up = random.uniform(-0.05, 0.05, (POLES, 4)), np.ones(POLES, bool)
                for t in range(LONGEST):
                    seen[t], alive[t] = state * SCALE, up
                    right[t] = random.random(POLES) < look(reader.values, seen[t])[1]
                    up = up & ~move(state, right[t])
                    if not up.any():
                        break
                trajectories.send((seen, right, alive))
                reader.wait_version(version + 1)
    except (passel.Unavailable, passel.NotFound, BrokenPipeError, KeyboardInterrupt):
        pass  # the learner is done


def gradient(values, seen, right, alive):
    """REINFORCE, with the expected return as baseline."""
    returns, behind = np.zeros(alive.shape, np.float32), 0.0
    for t in range(LONGEST - 1, -1, -1):
        returns[t] = behind = alive[t] * (0.01 + 0.99 * behind)
    seen, returns = seen[alive], returns[alive]
    hidden, probability, expected = look(values, seen)
    better = returns - expected
    better = (better - better.mean()) / (better.std() + 1e-6)
    out = np.stack([(probability - right[alive]) * better, 0.5 * (expected - returns)], axis=1) / len(seen)
    inner = (out @ values["out_w"].T) * (1 - hidden**2)
    return {"hid_w": seen.T @ inner, "hid_b": inner.sum(axis=0), "out_w": hidden.T @ out, "out_b": out.sum(axis=0)}


def learn(updates, target, seed):
    random = np.random.default_rng(seed)
    first = dict(VARIABLES, hid_w=random.normal(0, 0.5, (4, HIDDEN)).astype(np.float32))
    # In rounds, here of one worker, a reader has the values of one step.
    with passel.join(first, mode="barrier", optimizer="adam", learning_rate=0.005) as job:
        spawn = multiprocessing.get_context("spawn")
        pipes: list[multiprocessing.connection.Connection] = []
        actors = []
        for k in range(ACTORS):
            ours, theirs = spawn.Pipe(duplex=False)
            actors.append(spawn.Process(target=act, args=(job.id, [seed, k], theirs), daemon=True))
            actors[-1].start()
            theirs.close()
            pipes.append(ours)
        lengths: collections.deque[float] = collections.deque(maxlen=100)
        mean = 0.0
        while job.global_step < updates and mean < target and pipes and not job.stopped:
            ready = multiprocessing.connection.wait(pipes)
            for pipe in [pipe for pipe in pipes if pipe in ready]:
                try:
                    trajectory = pipe.recv()
                except EOFError:  # that actor has died
                    pipes.remove(pipe)
                    continue
                lengths.extend(trajectory[2].sum(axis=0))
                mean = float(np.mean(lengths)) if len(lengths) == 100 else 0.0
                job.step(gradient(job.pull(), *trajectory))
                job.metric(reward=mean)
        print(f"mean return {mean:.1f} of the last {len(lengths)} episodes, {job.global_step} updates")
    for pipe in pipes:
        pipe.close()
    for actor in actors:
        actor.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=1000, help="at most so many")
    parser.add_argument("--target", type=float, default=190, help="ends with this mean return (of 200)")
    parser.add_argument("--seed", type=int, default=1)
    learn(**vars(parser.parse_args()))
