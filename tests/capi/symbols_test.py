#!/usr/bin/env python3
"""usage: symbols_test.py LIBRARY HEADER ABI: the library shows what the header declares, and no more.

What programs rely on that were compiled before, the declarations and what the program ABI writes, is
as abi.txt says. Adding lines there is fine; changing one is another PASSEL_ABI_VERSION.
"""

import difflib
import pathlib
import re
import subprocess
import sys

LIBRARY, HEADER, ABI = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), sys.argv[3]


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

declarations = re.findall(r"PASSEL_API\s([^;{]*\))\s*;", code)
assert len(declarations) == len(declared), declarations
found = "".join(f"{' '.join(one.split())}\n" for one in declarations) + output_of(ABI)
golden = pathlib.Path(__file__).with_name("abi.txt").read_text()
if found != golden:
    sys.exit("".join(difflib.unified_diff(golden.splitlines(True), found.splitlines(True), "abi.txt", "now")))
print(f"{len(shown)} functions, SONAME libpassel.so.{version}")
