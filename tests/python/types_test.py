#!/usr/bin/env python3
"""Checks the hints and stubs of the package, and the examples, with mypy of PyPI.

    types_test.py BUILD_FOLDER

Installs it into a virtual environment in the build folder, once. The package is checked strictly, and
its stub against the module that was built. What imports torch or jax is checked where tools/setup --with
torch,jax has put them, and named where it has not. Exit codes: 0 all is well; 1 something is not; 77 nothing can
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


def python_with_frameworks():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "passel/frameworks"
    python = cache / "bin/python"
    ready = all((cache / f"{name}.ready").exists() for name in ("torch", "jax"))
    return python if ready and python.exists() else None


def imports_framework(source):
    return any(line.startswith(("import torch", "import jax", "from torch", "from jax", "import passel.torch",
                                "import passel.jax", "from passel import jax")) for line in source.read_text().splitlines())


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    python = python_with_packages(build / "tests/types")
    cache = f"--cache-dir={build}/tests/types/cache"
    # The classes and functions of nanobind are of types of their own; what is in the classes is compared.
    allowed = build / "tests/types/allowed"
    allowed.write_text("passel._core.Job\npassel._core.Reader\npassel._core.Watch\npassel._core.end_by_term_of_others_than\n")
    examples = sorted((SOURCES / "examples").glob("*.py"))
    frameworks = python_with_frameworks()
    which = ["--exclude", "passel/(torch|jax)"]
    if frameworks is not None:
        which = ["--python-executable", frameworks]
    else:
        passed_over = [example for example in examples if imports_framework(example)]
        examples = [example for example in examples if example not in passed_over]
        print("not checked, as there is no torch and no jax (tools/setup --with torch,jax): passel.torch, passel.jax, "
              f"{', '.join(example.name for example in passed_over)}")
    checks = [["mypy", "--strict", cache, *which, "passel"],
              *(["mypy", "--check-untyped-defs", cache, *which, example] for example in examples),
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
