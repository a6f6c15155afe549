#!/usr/bin/env python3
"""Checks the hints and stubs of the package, and the examples, with mypy of PyPI.

    types_test.py BUILD_FOLDER

Installs it into a virtual environment in the build folder, once. The package is checked strictly, and
its stub against the module that was built. Exit codes: 0 all is well; 1 something is not; 77 nothing can
be installed here. To be run by the Python that the package was built for.
"""

import os
import pathlib
import subprocess
import sys
import venv

PACKAGES = ("mypy", "numpy")
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src/python"


def skip(sentence):
    print(f"skipped: {sentence}")
    sys.exit(77)


def python_with_packages(folder):
    python, stamp = folder / "bin/python", folder / "installed"
    if stamp.exists():
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        skip(f"no virtual environment can be made (Debian: python3-venv): {error}")
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries=1", "--timeout=15", *PACKAGES],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if pip.returncode != 0:
        skip(f"pip cannot install {', '.join(PACKAGES)}: {pip.stdout[-500:]}")
    stamp.touch()
    return python


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    python = python_with_packages(build / "tests/types")
    cache = f"--cache-dir={build}/tests/types/cache"
    # The classes of nanobind have a metaclass; what is in them is compared.
    allowed = build / "tests/types/allowed"
    allowed.write_text("passel._core.Job\npassel._core.Reader\n")
    examples = sorted((SOURCES / "examples").glob("*.py"))
    checks = [["mypy", "--strict", cache, "passel"],
              *(["mypy", "--check-untyped-defs", cache, example] for example in examples),
              ["mypy.stubtest", "--allowlist", allowed, "passel._core"]]
    failed = False
    for module, *arguments in checks:
        at_module = module == "mypy.stubtest"
        done = subprocess.run([python, "-m", module, *arguments], cwd=build if at_module else SOURCES, check=False,
                              env={**os.environ, "MYPYPATH": str(SOURCES), "PYTHONPATH":
                                   str(build / "python") if at_module else ""})
        failed |= done.returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
