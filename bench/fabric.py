#!/usr/bin/env python3
"""fabric - measures passel's two ways to another host beside a bare exchange and other systems.

tools/bench --fabric builds and then calls this. Everything takes turns, round after round; the
table has medians, and ratios of figures of the same rounds. A missed row says so, and so does one
that could not be measured.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from fabric_training import PROVIDER, TENSORFLOW, WAYS, Training  # noqa: E402  (path: above)
from running import Failure, Stopped, run  # noqa: E402

ME = "fabric"
FORMAT = 1
FLOATS = 79510
PORT = 47593  # of fi_pingpong
PEERS = {  # name in the table: (peer, program, variant)
    "raw TCP, polling": ("tcp", "tcp_peer", "polling"),
    "raw TCP, blocking": ("tcp", "tcp_peer", "blocking"),
    "gRPC, polling": ("grpc", "grpc_peer", "polling"),
    "gRPC, blocking": ("grpc", "grpc_peer", "client"),
    "Redis, TCP": ("redis", "redis_peer", "tcp"),
    "Open MPI, TCP": ("openmpi", "mpi_peer", "tcp"),
}


def load_peers():
    """bench/peers/run, which knows how its programs are built and started."""
    loader = importlib.machinery.SourceFileLoader("peers_run", os.path.join(HERE, "peers", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("peers_run", loader))
    loader.exec_module(module)
    return module


def progress(what):
    print(f"[{time.monotonic() - STARTED:4.0f} s] {what}", file=sys.stderr, flush=True)


STARTED = time.monotonic()


class Figures:
    """What was measured in each round, by name; a reason instead where it was not."""

    def __init__(self):
        self.values = {}
        self.missing = {}

    def add(self, name, value):
        self.values.setdefault(name, []).append(value)

    def miss(self, name, reason):
        self.missing.setdefault(name, str(reason))

    def median(self, name):
        return statistics.median(self.values[name])

    def ratio(self, over, under):
        """(median of the rounds' ratios, their spread) or None."""
        pairs = list(zip(self.values.get(over, []), self.values.get(under, [])))
        if not pairs:
            return None
        ratios = [one / other for one, other in pairs]
        middle = statistics.median(ratios)
        return middle, (max(ratios) - min(ratios)) / middle

    def reason(self, *names):
        for name in names:
            if name not in self.values:
                return self.missing.get(name, "not measured")
        return None


# --- Exchanges ------------------------------------------------------------------------------------

class Exchanges:
    def __init__(self, flags, figures, stopped, scratch):
        self.flags, self.figures, self.stopped, self.scratch = flags, figures, stopped, scratch
        peers = load_peers()
        options = argparse.Namespace(
            only=["tcp", "grpc", "redis", "openmpi"], dir=flags.peers, build=flags.build, quick=flags.quick,
            fifo=False, data_dir=flags.data_dir)
        self.peers = peers.Bench(options, scratch)
        self.peers.stopped = stopped
        self.failure = peers.Failure

    def output(self, arguments, limit):
        with tempfile.TemporaryFile("w+", dir=self.scratch) as output:
            code = run(arguments, limit, self.stopped, stdout=output)
            if self.stopped.signal:
                raise KeyboardInterrupt
            if code != 0:
                raise Failure(f"{os.path.basename(arguments[0])} ended with {code}")
            output.seek(0)
            return output.read()

    def round(self):
        self.pingpong()
        self.ours()
        for row, (name, program, variant) in PEERS.items():
            self.peer(row, name, program, variant)

    def pingpong(self):
        name = "fi_pingpong"
        path = self.peers.environment("libfabric")["PATH"]
        program = shutil.which("fi_pingpong", path=path)
        if program is None:
            self.figures.miss(name, "fi_pingpong is not there: run bench/peers/setup")
            return
        turns = "2000" if self.flags.quick else "20000"
        common = [program, "-p", PROVIDER, "-e", "rdm", "-S", "8", "-I", turns]
        with subprocess.Popen([*common, "-B", str(PORT)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                time.sleep(0.5)  # it says nothing when it listens
                text = self.output([*common, "-P", str(PORT), "127.0.0.1"], 120)
            except Failure as failure:
                self.figures.miss(name, failure)
                return
            finally:
                server.kill()
        words = text.splitlines()[-1].split()
        # Its last column but one is half a round trip.
        self.figures.add(name, 2 * float(words[-2]))

    def ours(self):
        program = os.path.join(self.flags.build, "bin", "passel_fabric_bench")
        if not os.path.exists(program):
            self.figures.miss("ours", "this build has no libfabric: install libfabric-dev")
            return
        arguments = [program, "--json", f"--rounds={1 if self.flags.quick else 3}"]
        if self.flags.quick:
            arguments.append("--quick")
        for line in self.output(arguments, 300).splitlines():
            found = json.loads(line)
            if found["what"] == "exchange":
                for way in ("bare", "libfabric", "sealed"):
                    self.figures.add((way, found["bytes"]), found[way + "_us"])
            else:
                self.figures.add(("step", found["by"]), found["us"])
                self.figures.add(("rest", found["by"]), found["us"] - found["update_us"])

    def peer(self, row, name, program, variant):
        if row in self.figures.missing:
            return
        try:
            if name not in self.peers.versions:
                if name != "tcp":
                    self.peers.find_installed(name)
                self.peers.make(program, name)
                self.peers.versions.setdefault(name, "")
            self.peers.one_latency(row, name, program, variant, FLOATS)
            self.figures.add(row, self.peers.latency[row, FLOATS, "push+pull"][-1]["p50_us"])
        except self.failure as failure:
            self.figures.miss(row, failure)


# --- The table ------------------------------------------------------------------------------------

def rows(figures):
    """[what, measured, other, ratio, target, spread, verdict]; of those that could not be measured
    [what, reason]."""
    found = []

    def compare(what, ours, other, unit, digits, invert=False, most=None, least=None, also=None):
        reason = figures.reason(ours, other) or (also and figures.reason(also))
        if reason:
            found.append([what, "not measured: " + reason])
            return
        ratio, spread = figures.ratio(other, ours) if invert else figures.ratio(ours, other)
        verdict, target = "-", "none"
        if most is not None:
            target, verdict = f"<= {most}x", "met" if ratio <= most else "missed"
        if least is not None:
            target, verdict = f">= {least}x", "met" if ratio >= least else "missed"
        found.append([what, f"{figures.median(ours):.{digits}f} {unit}",
                      f"{figures.median(other):.{digits}f} {unit}", f"{ratio:.2f}x", target,
                      f"{100 * spread:.0f} %{'!' if spread > 0.2 else ' '}", verdict])

    for way in ("libfabric", "sealed"):
        of = {"libfabric": f"libfabric {PROVIDER}", "sealed": "sealed TCP"}[way]
        compare(f"8 B round trip, {of}; fi_pingpong", (way, 8), "fi_pingpong", "us", 1,
                most=1.3 if way == "libfabric" else None)
    bulk = 4 * FLOATS
    for way, what in (("libfabric", "libfabric"), ("sealed", "sealed TCP")):
        compare(f"318 KB there and back, {what}; bare exchange", (way, bulk), ("bare", bulk), "us",
                0, most=1.25)
    for by in ("libfabric, polling", "libfabric", "sealed"):
        what = by.replace("sealed", "sealed TCP")
        compare(f"push + pull of 318 KB less update, {what}; bare exchange", ("rest", by),
                ("bare", bulk), "us", 0, most=1.25)
    for peer in PEERS:
        for by in ("libfabric, polling", "sealed"):
            least = {"gRPC, polling": 3, "gRPC, blocking": 1.5}.get(peer)
            compare(f"push + pull of 318 KB, {by.replace('sealed', 'sealed TCP')}; {peer}",
                    ("step", by), peer, "us", 0, invert=True, least=least)
    for size, name in ((4 << 20, "4 MiB"), (64 << 20, "64 MiB")):
        for way, what in (("libfabric", "libfabric"), ("sealed", "sealed TCP")):
            compare(f"{name} there and back, {what}; bare exchange", (way, size), ("bare", size),
                    "us", 0, invert=True, least=0.85)
    for way in ("sealed TCP", "libfabric"):
        reason = figures.reason(("idle", way))
        if reason:
            found.append([f"idle ps, {way}", "not measured: " + reason])
            continue
        share = figures.median(("idle", way))
        found.append([f"idle ps, {way}", f"{share:.2f} %", "", "", "< 1 %", "",
                      "met" if share < 1 else "missed"])
    for way in ("sealed TCP", "libfabric"):
        compare(f"MNIST, 2 remote workers, {way}; shared memory", ("training", way),
                ("training", "shared memory"), "steps/s", 0)
        compare(f"MNIST, 2 remote workers, {way}; {TENSORFLOW}", ("training", way),
                ("training", TENSORFLOW), "steps/s", 0, least=5)
        reason = figures.reason(("accuracy", way), ("accuracy", "shared memory"))
        if reason:
            found.append([f"accuracy, {way}", "not measured: " + reason])
            continue
        means = [100 * statistics.mean(figures.values["accuracy", one])
                 for one in (way, "shared memory")]
        difference = abs(means[0] - means[1])
        found.append([f"accuracy, {way}; shared memory", f"{means[0]:.2f} %", f"{means[1]:.2f} %",
                      f"{difference:.2f}", "<= 0.3", "", "met" if difference <= 0.3 else "missed"])
    return found


def parse(arguments):
    default = os.environ.get("PASSEL_PEERS_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "passel", "peers")
    parser = argparse.ArgumentParser(prog=ME, allow_abbrev=False, description=__doc__)
    parser.add_argument("--build", required=True, help="where passel was built")
    parser.add_argument("--peers", default=default, help="the folder of bench/peers/setup")
    parser.add_argument("--quick", action="store_true",
                        help="once each and short, without 64 MiB: does everything work?")
    parser.add_argument("--rounds", type=int, help="of everything (default 3, with --quick 1)")
    parser.add_argument("--data_dir", help="MNIST as four IDX files")
    parser.add_argument("--json", help="write everything to this file as well")
    return parser.parse_args(arguments)


def main(arguments):
    flags = parse(arguments)
    flags.build = os.path.abspath(flags.build)
    flags.peers = os.path.abspath(flags.peers)
    rounds = flags.rounds or (1 if flags.quick else 3)
    peers = load_peers()
    figures, stopped = Figures(), Stopped()
    interrupted = False
    here = peers.machine()
    stolen, ticks = peers.processor_times()
    of = "not used"
    with tempfile.TemporaryDirectory(prefix="passel-fabric-") as scratch:
        try:
            exchanges = Exchanges(flags, figures, stopped, scratch)
            training = None
            try:
                data, of = exchanges.peers.find_data()
                training = Training(flags, figures, stopped, scratch, data, progress)
            except (Failure, peers.Failure, OSError) as failure:
                for way in [*WAYS, TENSORFLOW]:
                    for what in ("training", "accuracy", "idle"):
                        figures.miss((what, way), failure)
            for number in range(1, rounds + 1):
                progress(f"exchanges, {number} of {rounds}")
                exchanges.round()
                if training is not None:
                    training.round(number)
        except KeyboardInterrupt:
            interrupted = True
    stolen_after, ticks_after = peers.processor_times()
    here["steal_percent"] = round(100 * (stolen_after - stolen) / max(1, ticks_after - ticks), 2)
    here["load_average_after"] = " ".join(f"{x:.2f}" for x in os.getloadavg())
    here["seconds"] = round(time.monotonic() - STARTED)
    for key, value in here.items():
        print(f"{key.replace('_', ' '):<18} {value}")
    print(f"{'training':<18} {of}\n")
    heads = ["what; beside what", "measured", "beside", "ratio", "target", "spread", "verdict"]
    table = rows(figures)
    for line in peers.layout([heads, *table]):
        print(line)
    print("\nEach ratio is the median of the rounds' ratios; ! marks a spread above 20 %. There\n"
          "and back is one exchange; push + pull a whole step of a store, with its update where\n"
          "that is not taken off.")
    if rounds == 1:
        print("Each was measured once, so no spread is known: not for quoting.")
    if interrupted:
        print("interrupted: what was not complete is missing above")
    sys.stdout.flush()
    if flags.json:
        everything = {"format": FORMAT, "machine": here, "quick": flags.quick, "rounds": rounds,
                      "interrupted": interrupted, "rows": table,
                      "figures": [{"of": name if isinstance(name, str) else list(name),
                                   "values": values} for name, values in figures.values.items()],
                      "missing": [{"of": name if isinstance(name, str) else list(name),
                                   "reason": reason} for name, reason in figures.missing.items()]}
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)
            file.write("\n")
    if interrupted:
        return 130
    wrong = [reason for reason in figures.missing.values() if "WRONG" in reason]
    for reason in wrong:
        print(f"{ME}: {reason}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as error:
        sys.exit(f"{ME}: {error}")
