#!/usr/bin/env python3
"""usage: symbols_test.py LIBRARY HEADER: the library shows what the header declares, and no more."""

import pathlib
import re
import subprocess
import sys

LIBRARY, HEADER = sys.argv[1], pathlib.Path(sys.argv[2]).read_text()


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
declared = set(re.findall(r"PASSEL_API\s[^;(]*?(passel_\w+)\(", code))
assert len(declared) == code.count("PASSEL_API ") - code.count("#define PASSEL_API "), declared
shown = {line.split()[-1].split("@")[0] for line in output_of("nm", "-D", "--defined-only", LIBRARY).splitlines()}
shown.discard("PASSEL_1")  # the version itself
assert shown == declared, f"only shown: {shown - declared}, only declared: {declared - shown}"

version = re.search(r"#define PASSEL_ABI_VERSION (\d+)", HEADER).group(1)
dynamic = output_of("readelf", "-d", LIBRARY)
assert f"soname: [libpassel.so.{version}]" in dynamic, dynamic
print(f"{len(shown)} functions, SONAME libpassel.so.{version}")
