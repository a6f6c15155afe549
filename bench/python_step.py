#!/usr/bin/env python3
"""usage: python_step.py [BUILD]: what a step costs through the package for Python, over the C interface.

One process alone, mode hogwild, sgd, 16 floats in each variable, no computing in between: pull("view"),
gradients, step(), five times in turn with bench/capi_step.c. Prints the median of each. To be run by the
Python that the package was built for (tools/setup --with python).
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build/release").resolve()
sys.path.insert(0, str(BUILD / "python"))
import passel  # noqa: E402

FLOATS = 16
TURNS = 5


def python_ns(count, steps):
    with passel.join({f"v{i}": (FLOATS,) for i in range(count)}, optimizer="sgd") as job:
        job.pull("view")
        for gradient in job.gradients.values():
            gradient[...] = 0
        for number in range(-steps // 10, steps):
            if number == 0:
                begin = time.perf_counter_ns()
            values = job.pull("view")
            gradients = job.gradients
            job.step()
        assert len(values) == len(gradients) == count
        return (time.perf_counter_ns() - begin) / steps


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/capi_step"
        subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{SOURCE}/src", str(SOURCE / "bench/capi_step.c"),
                        f"-L{BUILD}/lib", "-lpassel", f"-Wl,-rpath,{BUILD}/lib", "-o", program], check=True)
        print("variables  C us/step  Python us/step  overhead us  limit us")
        for count in 1, 10, 100:
            steps = 20000 if count < 100 else 5000
            c, python = [], []
            for _ in range(TURNS):
                done = subprocess.run([program, str(count), str(FLOATS), str(steps)], check=True, text=True,
                                      capture_output=True)
                c.append(float(done.stdout))
                python.append(python_ns(count, steps))
            c_us, python_us = statistics.median(c) / 1e3, statistics.median(python) / 1e3
            print(f"{count:9}  {c_us:9.2f}  {python_us:14.2f}  {python_us - c_us:11.2f}  {5 + 0.2 * count:8.1f}")


if __name__ == "__main__":
    main()
