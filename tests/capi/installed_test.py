#!/usr/bin/env python3
"""usage: installed_test.py CMAKE BUILD EXAMPLES: projects of others find an installed passel.

By find_package and by pkg-config, from a prefix that was moved after it was installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CMAKE, BUILD, EXAMPLES = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=120,
                          check=False, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment})
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


with tempfile.TemporaryDirectory(prefix="passel-installed-") as scratch_name:
    scratch = pathlib.Path(scratch_name).resolve()
    installed, prefix = scratch / "first", scratch / "moved"
    # The rules of the library alone, so that nothing else has to be built.
    run(CMAKE, f"-DCMAKE_INSTALL_PREFIX={installed}", "-P", BUILD / "src/capi/cmake_install.cmake")
    installed.rename(prefix)
    assert (prefix / "include/passel.h").is_file()
    pc, = prefix.rglob("passel.pc")
    library = pc.parents[1]
    assert (library / "libpassel.so").is_symlink() and (library / "libpassel.so.1").is_symlink()

    project, build = scratch / "project", scratch / "build"
    shutil.copytree(EXAMPLES, project)
    run(CMAKE, "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(CMAKE, "--build", build)
    flags = run("pkg-config", "--cflags", "--libs", "passel", PKG_CONFIG_PATH=str(pc.parent)).split()
    by_hand = scratch / "by_hand"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", by_hand, project / "least_squares.c", *flags, "-lm")
    for program in (build / "least_squares_c", build / "least_squares_cc", by_hand):
        said = run(program, "optimizer=sgd", "learning_rate=0.5", LD_LIBRARY_PATH=str(library),
                   XDG_RUNTIME_DIR=str(scratch))
        assert said == "y = 2.00 x + -1.00\n", (program, said)
    for source in ("least_squares.c", "least_squares.cc"):
        assert len((project / source).read_text().splitlines()) <= 60, source
print("find_package and pkg-config find it")
