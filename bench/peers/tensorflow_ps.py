"""tensorflow_ps - the MNIST job by TensorFlow's parameter server: one ps task and N worker tasks on
loopback or two addresses, between-graph replication (the compat.v1 interface, in which the reference programs of this
field are written), asynchronous, or with --sync under SyncReplicasOptimizer.

The parent starts one process per task, lets all workers begin together, and ends everything as
soon as the first worker has seen the last global step. The time is from the first begin to that
moment. A worker's session runs on one thread on its own core; the ps runs where it likes.

Prints one JSON object: {"steps_per_second": ..., "accuracy": ..., "steps": ..., "detail": ...}.
steps counts gradients of all workers. Run by bench/peers/run; exits 1 when it fails.
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import mnist

ME = "tensorflow_ps"


# --- One task -----------------------------------------------------------------------------------

def build(tf, flags, index, cluster):
    """The graph of worker `index`; what a step needs."""
    worker = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        tf.set_random_seed(1)
        step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(),
                               trainable=False, collections=["variables", "global_step"])
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.int64, [None])
        first = tf.truncated_normal_initializer(stddev=1 / 28)
        second = tf.truncated_normal_initializer(stddev=1 / 10)
        w1 = tf.get_variable("w1", [784, 100], initializer=first)
        b1 = tf.get_variable("b1", [100], initializer=tf.zeros_initializer())
        w2 = tf.get_variable("w2", [100, 10], initializer=second)
        b2 = tf.get_variable("b2", [10], initializer=tf.zeros_initializer())
        logits = tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(x, w1, b1)), w2, b2)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        optimizer = tf.train.AdamOptimizer(flags.learning_rate)
        if flags.sync:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=flags.workers, total_num_replicas=flags.workers)
        train = optimizer.minimize(loss, global_step=step)
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    return x, y, step, train, right, optimizer


def run_worker(flags, index, cluster, server):
    import numpy as np
    import tensorflow.compat.v1 as tf
    chief = index == 0
    images, labels = mnist.load(flags.data_dir, "train")
    labels = labels.astype(np.int64)
    x, y, step, train, right, optimizer = build(tf, flags, index, cluster)
    local_init = tf.local_variables_initializer()
    ready_for_local = queue = tokens = None
    if flags.sync:
        local_init = optimizer.chief_init_op if chief else optimizer.local_step_init_op
        ready_for_local = optimizer.ready_for_local_init_op
        queue = optimizer.get_chief_queue_runner()
        tokens = optimizer.get_init_tokens_op()
    # SessionManager looks for the chief every recovery_wait_secs; its default is 30.
    manager = tf.train.SessionManager(
        local_init_op=local_init, ready_op=tf.report_uninitialized_variables(),
        ready_for_local_init_op=ready_for_local, graph=tf.get_default_graph(),
        recovery_wait_secs=1)
    config = tf.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1,
        device_filters=["/job:ps", f"/job:worker/task:{index}"])
    if chief:
        session = manager.prepare_session(
            server.target, init_op=tf.global_variables_initializer(), config=config)
        if flags.sync:
            queue.create_threads(session, daemon=True, start=True)
            session.run(tokens)
    else:
        session = manager.wait_for_session(server.target, config=config, max_wait_secs=60)
    random = np.random.default_rng(index + 1)
    batches = mnist.batches(random, len(images), flags.batch_size)
    # One update of the shared step is `workers` gradients under SyncReplicasOptimizer.
    target = flags.steps // flags.workers if flags.sync else flags.steps
    # The first step builds the graph's executors: everyone makes one before the time begins.
    rows = next(batches)
    session.run(train, {x: images[rows], y: labels[rows]})
    warm_ups = 1 if flags.sync else flags.workers
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    seen = 0
    while seen < target + warm_ups:
        rows = next(batches)
        try:
            _, seen = session.run([train, step], {x: images[rows], y: labels[rows]})
        except (tf.errors.AbortedError, tf.errors.UnavailableError):
            pass  # now and then over a network; MonitoredSession goes on as well
    end = time.monotonic()
    test_images, test_labels = mnist.load(flags.data_dir, "t10k")
    accuracy = session.run(right, {x: test_images, y: test_labels.astype(np.int64)})
    print("done", json.dumps({
        "begin": begin, "end": end, "updates": int(seen) - warm_ups, "accuracy": float(accuracy),
        "version": tf.__version__}), flush=True)
    sys.stdin.readline()


def run_task(flags):
    mnist.end_with_parent()
    signal.alarm(flags.limit)
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(json.loads(flags.cluster))
    job, index = flags.task.split("/")
    index = int(index)
    cpu = mnist.cpu_of(flags, index) if job == "worker" else None
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        print("ready", flush=True)
        sys.stdin.readline()  # until the parent ends
        return
    run_worker(flags, index, cluster, server)


# --- The parent ---------------------------------------------------------------------------------

def free_ports(count):
    """Loopback ports that were free a moment before."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Tasks:
    """The processes of one job; all of them end with this object."""

    def __init__(self, flags):
        self.flags = flags
        self.processes = {}
        self.partial = {}

    def start(self, name):
        enter = self.flags.enter.split() if name.startswith("worker/") else []
        arguments = [*enter, sys.executable, os.path.abspath(__file__), *sys.argv[1:],
                     "--task", name, "--cluster", self.cluster]
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1")
        self.processes[name] = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.partial[name] = b""

    def next_line(self, names, deadline):
        """(name, line) of whoever writes one; ends the program at the deadline or a death."""
        while True:
            for name in names:
                line, found, rest = self.partial[name].partition(b"\n")
                if found:
                    self.partial[name] = rest
                    return name, line.decode()
            outputs = {self.processes[name].stdout: name for name in names}
            left = deadline - time.monotonic()
            ready, _, _ = select.select(list(outputs), [], [], max(0, left))
            if not ready:
                fail(f"nothing came from {', '.join(names)} before the deadline")
            for output in ready:
                data = os.read(output.fileno(), 65536)
                if not data:
                    fail(f"{outputs[output]} ended early")
                self.partial[outputs[output]] += data

    def say(self, name, line):
        self.processes[name].stdin.write(line)
        self.processes[name].stdin.flush()

    def kill(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


def fail(sentence):
    raise RuntimeError(sentence)


def run_job(flags, tasks):
    deadline = time.monotonic() + flags.limit
    ports = free_ports(1 + flags.workers)
    tasks.cluster = json.dumps({"ps": [f"{flags.ps_address}:{ports[0]}"],
                                "worker": [f"{flags.worker_address}:{port}" for port in ports[1:]]})
    workers = [f"worker/{index}" for index in range(flags.workers)]
    for name in ["ps/0", *workers]:
        tasks.start(name)
    waiting = set(workers)
    while waiting:
        name, line = tasks.next_line(sorted(waiting), deadline)
        if line == "ready":
            waiting.discard(name)
    begin = time.monotonic()
    for name in workers:
        tasks.say(name, b"go\n")
    while True:
        name, line = tasks.next_line(workers, deadline)
        if line.startswith("done "):
            break
    found = json.loads(line[5:])
    steps = found["updates"] * (flags.workers if flags.sync else 1)
    seconds = found["end"] - min(begin, found["begin"])
    return {"steps_per_second": steps / seconds, "accuracy": found["accuracy"], "steps": steps,
            "detail": f"tensorflow {found['version']}, 1 ps"
                      + (", SyncReplicasOptimizer" if flags.sync else "")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cluster", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ps_address", default="127.0.0.1")
    parser.add_argument("--worker_address", default="127.0.0.1")
    parser.add_argument("--enter", default="", metavar="COMMAND",
                        help="what starts a worker's program on its host")
    flags = mnist.parse(parser)
    if flags.task:
        run_task(flags)
        return
    tasks = Tasks(flags)
    try:
        print(json.dumps(run_job(flags, tasks)))
    except (RuntimeError, OSError, ValueError) as error:
        sys.exit(f"{ME}: {error}")
    finally:
        tasks.kill()


if __name__ == "__main__":
    main()
