#!/usr/bin/env python3
"""Reads our files with the readers of others, as PyPI has them: safetensors and TensorBoard.

    pypi_readers_test.py BUILD_FOLDER

Installs them into a virtual environment in the build folder, once, and runs the tests that want
them. Exit codes: 0 all pass; 1 some do not; 77 nothing can be installed here.
"""
import os
import subprocess
import sys
import venv

PACKAGES = ("numpy", "safetensors", "tensorboard")
# Programs, and their tests that are skipped where the packages are missing.
TESTS = (("io_test", "SafetensorsReferenceTest.*"), ("events_test", "EventReferenceTest.*"),
         ("e2e_test", "TensorBoardTest.ItsOwnReader*"), ("e2e_test", "CkptTest.NumpyLoads*"),
         ("job_test", "CheckpointPartTest.TheReferencesReader*"))


def skip(sentence):
    print(f"skipped: {sentence}")
    sys.exit(77)


def python_with_packages(folder):
    python = os.path.join(folder, "bin", "python")
    stamp = os.path.join(folder, "installed")
    if not os.path.exists(stamp):
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            skip(f"no virtual environment can be made (Debian: python3-venv): {error}")
        pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries=1",
                              "--timeout=15", *PACKAGES], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        if pip.returncode != 0:
            skip(f"pip cannot install {', '.join(PACKAGES)}: {pip.stdout[-500:]}")
        with open(stamp, "w", encoding="utf-8"):
            pass
    return python


def main():
    build = os.path.abspath(sys.argv[1])
    python = python_with_packages(os.path.join(build, "tests", "pypi"))
    failed = []
    for program, tests in TESTS:
        run = subprocess.run([os.path.join(build, "bin", program), "--gtest_filter=" + tests],
                             env={**os.environ, "PASSEL_TEST_PYTHON": python},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             check=False)
        print(run.stdout)
        # With the packages there, a test that is skipped or not there is no test.
        if run.returncode != 0 or "[  SKIPPED ]" in run.stdout or "[  PASSED  ]" not in run.stdout \
                or "Running 0 tests" in run.stdout:
            failed.append(program)
    if failed:
        print("failed or not run: " + ", ".join(failed))
        sys.exit(1)


if __name__ == "__main__":
    main()
