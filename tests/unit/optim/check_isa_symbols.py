#!/usr/bin/env python3
"""Fails if code built for one instruction set could be linked in for another.

Usage: check_isa_symbols.py <nm> <object file>...

Of an object built from update_loops.cc only its table may be visible to the linker: a weak
function in the AVX-512 object could be the copy that the linker keeps for the whole program, which
would then crash on a processor without AVX-512.
"""

import re
import subprocess
import sys


def main():
    nm, objects = sys.argv[1], [o for o in sys.argv[2:] if "update_loops_" in o]
    if not objects:
        sys.exit("no object of update_loops.cc among the arguments")
    failed = False
    for path in objects:
        isa = re.search(r"update_loops_(\w+)\.cc", path).group(1)
        command = [nm, "--defined-only", "--extern-only", path]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        lines = output.splitlines()
        symbols = [line.split()[-2:] for line in lines if line.strip()]
        tables = [name for kind, name in symbols if f"update_table_{isa}" in name and kind in "DRB"]
        code = [f"{kind} {name}" for kind, name in symbols if kind in "TWui"]
        if not tables:
            print(f"{path}: the table update_table_{isa} is missing: {symbols}")
            failed = True
        for symbol in code:
            print(f"{path}: a function is visible outside: {symbol}")
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
