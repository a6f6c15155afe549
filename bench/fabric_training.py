"""fabric_training - training by tasks on one host and on two, and what a ps takes that stands
still; a part of fabric.py."""

import json
import os
import signal
import subprocess
import time

from hosts import Hosts
from running import Failure

HERE = os.path.dirname(os.path.realpath(__file__))
PROVIDER = "tcp;ofi_rxm"
WAYS = ("shared memory", "sealed TCP", "libfabric")
TENSORFLOW = "TensorFlow's ps"


class Training:
    """MNIST with 1 ps and 2 workers, on one host and on two."""

    def __init__(self, flags, figures, stopped, scratch, data, progress):
        self.progress = progress
        self.flags, self.figures, self.stopped, self.scratch = flags, figures, stopped, scratch
        self.program = os.path.join(flags.build, "bin", "passel")
        self.steps = 600 if flags.quick else 6000
        self.data = data
        self.hosts = Hosts()

    def tasks(self, way, seed, steps):
        """The processes of a job, ps first."""
        where = self.hosts.here if way == "shared memory" else self.hosts.there
        flags = [f"--ps_hosts={self.hosts.here.address}:2222",
                 f"--worker_hosts={where.address}:3222,{where.address}:3223",
                 "--mode=hogwild", f"--data_dir={self.data}", f"--train_steps={steps}",
                 f"--token_file={self.scratch}/token", f"--seed={seed}", "--device=cpu",
                 "--model=mlp", "--hidden_units=100", "--batch_size=100", "--optimizer=adam",
                 "--learning_rate=0.01", "--start_wait=30"]
        if way == "libfabric":
            flags.append(f"--fabric_provider={PROVIDER}")
        processes = []
        for host, job, index in ((self.hosts.here, "ps", 0), (where, "worker", 0),
                                 (where, "worker", 1)):
            log = open(f"{self.scratch}/{job}{index}", "w+", encoding="utf-8")
            processes.append((subprocess.Popen(
                [*host.enter, self.program, "task", f"--job_name={job}", f"--task_index={index}",
                 *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log), log))
            while job == "ps" and "is ready" not in said(log):
                if processes[0][0].poll() is not None:
                    raise Failure(f"ps/0 ended: {last(log)}")
                time.sleep(0.01)
        return processes

    def one(self, way, seed, timed=True):
        processes = self.tasks(way, seed, self.steps)
        end = time.monotonic() + 300
        try:
            for process, log in processes:
                code = process.wait(max(1, end - time.monotonic()))
                if self.stopped.signal:
                    raise KeyboardInterrupt
                if code != 0:
                    raise Failure(f"a task ended with {code}: {last(log)}")
            seconds = accuracy = None
            for line in said(processes[1][1]).splitlines():
                if line.startswith("Training elapsed time:"):
                    seconds = float(line.split()[-2])
                if "final accuracy" in line:
                    accuracy = float(line.split()[-1])
            if not seconds or accuracy is None:
                raise Failure("worker/0 has said neither its time nor its accuracy")
            if timed:
                self.figures.add(("training", way), self.steps / seconds)
            self.figures.add(("accuracy", way), accuracy)
        finally:
            end_all(processes)

    def idle(self, way):
        """Share of a core that a ps takes whose two workers stand still."""
        processes = self.tasks(way, 1, 10**9)
        try:
            ps = processes[0][0].pid
            for _, log in processes[1:]:
                wait_for(log, "Session initialization complete", 60)
            time.sleep(0.5)
            for process, _ in processes[1:]:
                process.send_signal(signal.SIGSTOP)  # for less than the lease
            time.sleep(1)
            begin, since = processor_seconds(ps), time.monotonic()
            time.sleep(1 if self.flags.quick else 5)
            used, passed = processor_seconds(ps) - begin, time.monotonic() - since
            for process, _ in processes[1:]:
                process.send_signal(signal.SIGCONT)
            self.figures.add(("idle", way), 100 * used / passed)
        finally:
            end_all(processes)

    def tensorflow(self, seed):
        tree = os.path.join(self.flags.peers, "tensorflow")
        if not os.path.exists(os.path.join(tree, ".done")):
            raise Failure("not installed: run bench/peers/setup --only tensorflow")
        done = subprocess.run(
            [*self.hosts.here.enter, os.path.join(tree, "bin", "python"), "-B",
             os.path.join(HERE, "peers", "tensorflow_ps.py"), "--data_dir", self.data, "--workers",
             "2", "--steps", str(self.steps), "--ps_address", self.hosts.here.address,
             "--worker_address", self.hosts.there.address, "--enter",
             " ".join(self.hosts.there.enter)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            reasons = [line for line in said if "Error: " in line and "RuntimeError" not in line]
            raise Failure("; ".join([said[-1], *reasons[:1]]))
        found = json.loads(done.stdout.strip().splitlines()[-1])
        self.figures.add(("training", TENSORFLOW), found["steps_per_second"])
        self.figures.add(("accuracy", TENSORFLOW), found["accuracy"])

    def round(self, seed):
        for way in WAYS:
            self.attempt(("training", way), lambda way=way: self.one(way, seed))
            if way != "shared memory":
                self.attempt(("idle", way), lambda way=way: self.idle(way))
        self.attempt(("training", TENSORFLOW), lambda: self.tensorflow(seed))
        # One seed and the next are 0.2 points apart: the means of three tell little.
        for more in () if self.flags.quick else (100, 200):
            for way in WAYS:
                self.attempt(("accuracy", way), lambda way=way, seed=seed + more: self.one(way, seed, timed=False))

    def attempt(self, name, measure):
        if name in self.figures.missing:
            return
        self.progress(f"{name[0]}: {name[1]}")
        try:
            measure()
        except (Failure, OSError, subprocess.TimeoutExpired) as failure:
            self.figures.miss(name, failure)


def said(log):
    with open(log.name, encoding="utf-8") as file:
        return file.read()


def last(log):
    return (said(log).strip().splitlines() or ["it said nothing"])[-1]


def wait_for(log, text, seconds):
    end = time.monotonic() + seconds
    while text not in said(log):
        if time.monotonic() > end:
            raise Failure(f"'{text}' was not said within {seconds} s: {last(log)}")
        time.sleep(0.02)


def end_all(processes):
    for process, log in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        log.close()


def processor_seconds(pid):
    """Of all threads of a process that are there."""
    folder, nanoseconds = f"/proc/{pid}/task", 0
    for thread in os.listdir(folder):
        with open(f"{folder}/{thread}/schedstat", encoding="utf-8") as file:
            nanoseconds += int(file.read().split()[0])
    return nanoseconds / 1e9
