#!/usr/bin/env python3
"""check_includes.py - holds the sources to the levels of the architecture.

Reads every C++ file of src, shm, fabric, bench, tests and tools and reports, as FILE:LINE: rule,
  - an include of a folder that the including folder may not know (table ALLOWED below),
  - an include of our own that is not written from an include root, or names no file,
  - a cycle of includes,
  - a heavy library in a header of src, shm or fabric (*_internal.h may, and is then included by
    .cc files only), a header without #pragma once,
  - the wall clock outside src/base/clock.cc and src/base/log.*.

usage: check_includes.py [--root DIR] | --self-test
Exit codes: 0 clean, 1 a rule is broken, 2 wrong usage.
"""

import argparse
import os
import posixpath
import re
import sys
import tempfile

# --- The rules ---------------------------------------------------------------------------------

# Who may include whom, itself always. The same levels as in the architecture's section 2: change
# both together. Nobody may include a folder that stands in no list.
LEVEL_1 = ["src/compute", "src/data", "src/io", "src/optim", "src/cluster"]
BELOW = ["src/base", *LEVEL_1, "src/nn", "src/store", "src/train", "shm", "fabric"]
ALLOWED = {
    "src/base": [],
    **{folder: ["src/base"] for folder in LEVEL_1},
    "src/nn": ["src/base", "src/compute"],
    "src/store": ["src/base", "src/optim", "src/cluster"],
    "src/train": ["src/base", "src/compute", "src/nn", "src/store", "src/data", "src/io",
                  "src/cluster"],
    "src/cuda": ["src/base", "src/compute", "src/store", "src/optim"],
    "shm": ["src/base", "src/store", "src/optim", "src/cluster"],
    "fabric": ["src/base", "src/store", "src/optim", "src/cluster"],
    "src/job": [*BELOW],
    "src/lab": [*BELOW],
    "src/capi": [*BELOW, "src/job"],
    "src/python": ["src/capi"],
    "bench": [*BELOW, "src/job", "src/lab"],
    "tests": [*BELOW, "src/job", "src/lab", "src/capi", "src/cuda"],  # what a GPU runs is run on the CPU there
    "tools": [*BELOW, "src/job", "src/lab"],
}
TOP_FOLDERS = ["src", "shm", "fabric", "bench", "tests", "tools"]
SOURCES = (".h", ".cc", ".cu", ".cuh", ".inc")
HEADERS = (".h", ".cuh")
# Shared by the .cc files of one folder, included by no header: may use heavy libraries.
INTERNAL = "_internal.h"

# Libraries that a header of src, shm or fabric must not drag in. <fmt/core.h> is light enough,
# and so is nlohmann's header of forward declarations.
HEAVY = re.compile(r"(boost/|cblas|openblas|curl/|sodium|openssl/|spdlog/|CLI/|nlohmann/(?!json_fwd\.hpp$)|"
                   r"fmt/(?!core\.h$))")

# Timeouts live on the monotonic clock alone: a jump of the wall clock must change nothing.
WALL_CLOCK = re.compile(r"\b(system_clock|CLOCK_REALTIME\w*|timed_lock)\b")
WALL_CLOCK_FILES = {"src/base/clock.cc", "src/base/log.cc", "src/base/log.h"}

# --- Reading -----------------------------------------------------------------------------------

COMMENT_OR_LITERAL = re.compile(
    r'//(?:[^\\\n]|\\.)*'  # a backslash at the end carries the comment on
    r'|/\*.*?(?:\*/|\Z)'
    r'|R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)*'",
    re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*(?:"([^"\n]*)"|<([^>\n]*)>|(.*))', re.MULTILINE)
INCLUDE_LINE_START = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*$')
PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
NOT_NEWLINE = re.compile(r"[^\n]")


def split_code(text):
    """Returns (text without comments, the same without literals); line numbers stay.

    The first keeps the names in #include "..." and nothing else in quotes.
    """
    names, code, at = [], [], 0
    for match in COMMENT_OR_LITERAL.finditer(text):
        before, token = text[at:match.start()], match.group()
        names.append(before)
        code.append(before)
        blank = NOT_NEWLINE.sub(" ", token)
        code.append(blank)
        line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        names.append(token if token[0] == '"' and INCLUDE_LINE_START.match(line) else blank)
        at = match.end()
    names.append(text[at:])
    code.append(text[at:])
    return "".join(names), "".join(code)


def folder_of(path):
    """The folder that a file belongs to, as ALLOWED names it; a file right in src has none."""
    parts = path.split("/")
    if parts[0] == "src":
        return "/".join(parts[:2]) if len(parts) > 2 else None
    return parts[0] if len(parts) > 1 else None


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Checker:
    def __init__(self, root):
        self.root = root
        self.errors = []  # (file, line, sentence)
        self.files = self._find_files()
        self.known = set(self.files)
        self.edges = {}  # file -> [(included file of ours, line)]

    def _find_files(self):
        found = []
        for top in TOP_FOLDERS:
            for folder, folders, names in os.walk(os.path.join(self.root, top)):
                folders.sort()
                relative = os.path.relpath(folder, self.root).replace(os.sep, "/")
                found += [f"{relative}/{name}" for name in sorted(names) if name.endswith(SOURCES)]
        return found

    def error(self, path, line, sentence):
        self.errors.append((path, line, sentence))

    def run(self):
        for path in self.files:
            self._check_file(path)
        self._check_cycles()
        self.errors.sort()
        return self.errors

    def _check_file(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            names, code = split_code(file.read())
        folder = folder_of(path)
        if folder not in ALLOWED:
            self.error(path, 1, f"{folder or 'src itself'} has no level: give it one in the "
                                "architecture and in ALLOWED of .ci/check_includes.py")
        if path.endswith(HEADERS) and not PRAGMA_ONCE.search(code):
            self.error(path, 1, "a header begins with #pragma once")
        if path not in WALL_CLOCK_FILES:
            for match in WALL_CLOCK.finditer(code):
                self.error(path, line_of(code, match.start()),
                           f"{match.group()} follows the wall clock, which may jump: "
                           "use base/clock.h or base/deadline.h")
        self.edges[path] = []
        for match in INCLUDE.finditer(names):
            line = line_of(names, match.start())
            quoted, angled, other = match.groups()
            if quoted is not None:
                self._check_own(path, folder, line, quoted)
            elif angled is not None:
                self._check_library(path, folder, line, angled)
            else:
                self.error(path, line, f"#include {other.strip()} cannot be checked: write the "
                                       "file's name")

    def _resolve(self, path, name):
        """The file of ours that the include roots give for `name`, or None."""
        roots = ["src/", ""] + (["tests/"] if path.startswith("tests/") else [])
        for root in roots:
            if root + name in self.known:
                return root + name
        return None

    def _check_own(self, path, folder, line, name):
        if name.startswith("/") or any(part in (".", "..") for part in name.split("/")):
            self.error(path, line, f'"{name}" is a relative or absolute path: write it from an '
                                   "include root (src/ or the repository root)")
            return
        target = self._resolve(path, name)
        if target is None:
            if posixpath.join(posixpath.dirname(path), name) in self.known:
                full = posixpath.join(posixpath.dirname(path), name)
                self.error(path, line, f'"{name}" is found only beside its includer: write it from '
                                       f'an include root, "{full.removeprefix("src/")}"')
            else:
                self.error(path, line, f'"{name}" is no file of ours: a library goes in <...>, our '
                                       "own file is written from src/ or the repository root")
            return
        if name.startswith("src/"):
            self.error(path, line, f'"{name}" goes through two include roots: write '
                                   f'"{name.removeprefix("src/")}"')
        self.edges[path].append((target, line))
        if target.endswith(INTERNAL) and path.endswith(HEADERS):
            self.error(path, line, f'"{name}" is an internal header: only .cc files include it')
        wanted = folder_of(target)
        if wanted == folder or wanted in ALLOWED.get(folder, []):
            return
        if wanted == "src/cuda":
            why = "src/cuda is a plugin that is loaded at run time and included by nobody"
        elif wanted in ("tools", "bench", "tests"):
            why = f"nothing includes {wanted} but {wanted} itself"
        else:
            may = ", ".join(ALLOWED.get(folder, [])) or "nothing but itself"
            why = f"{folder} may include {may}"
        self.error(path, line, f'"{name}" is not allowed here: {why}')

    def _check_library(self, path, folder, line, name):
        if self._resolve(path, name) is not None:
            self.error(path, line, f"<{name}> is our own file: include it with quotes")
        elif (path.endswith(HEADERS) and not path.endswith(INTERNAL) and HEAVY.match(name) and
              (folder or "src").startswith(("src", "shm", "fabric"))):
            self.error(path, line, f"<{name}> is a heavy library in a header: include it in the "
                                   ".cc file and hide it behind a forward declaration")

    def _check_cycles(self):
        """Reports each cycle at the include that closes it, once."""
        state = {}  # absent: not seen; 1: on the current path; 2: done
        for start in self.files:
            if start in state:
                continue
            state[start] = 1
            stack = [(start, iter(self.edges[start]))]
            while stack:
                path, targets = stack[-1]
                for target, line in targets:
                    if state.get(target) == 1:
                        chain = [entry[0] for entry in stack]
                        chain = chain[chain.index(target):] + [target]
                        self.error(path, line, "the includes go round in a circle: " +
                                   " -> ".join(chain))
                    elif target not in state:
                        state[target] = 1
                        stack.append((target, iter(self.edges[target])))
                        break
                else:
                    state[path] = 2
                    stack.pop()


# --- Self-test ---------------------------------------------------------------------------------

def table_cycle(table):
    """A folder that can reach itself in `table`, or None."""
    def reaches(start):
        seen, todo = set(), list(table[start])
        while todo:
            folder = todo.pop()
            if folder == start:
                return True
            if folder not in seen:
                seen.add(folder)
                todo += table.get(folder, [])
        return False
    return next((folder for folder in table if reaches(folder)), None)


def own_header(folder):
    return f"{folder}/own.h"


def include_line(header):
    return f'#include "{header.removeprefix("src/")}"\n'


# The levels once more, as pairs that must and that must not pass: written out by hand, so that
# a slip in ALLOWED does not go unnoticed.
MUST_PASS = """
src/compute>src/base src/data>src/base src/io>src/base src/optim>src/base src/cluster>src/base
src/nn>src/compute src/nn>src/base src/store>src/optim src/store>src/cluster src/store>src/base
src/train>src/nn src/train>src/store src/train>src/data src/train>src/io src/train>src/cluster
shm>src/store shm>src/optim shm>src/base shm>src/cluster
fabric>src/store fabric>src/optim fabric>src/cluster fabric>src/base
src/cuda>src/compute src/cuda>src/store src/cuda>src/optim
tools>src/train tools>shm tools>fabric tools>src/base bench>shm bench>src/store
tests>src/train tests>shm tests>fabric tests>src/optim tests>src/cuda src/train>src/compute
src/capi>src/job src/capi>shm tests>src/capi src/job>shm src/job>src/train src/job>src/base tools>src/job tests>src/job
tools>src/lab tests>src/lab bench>src/lab bench>src/job src/lab>shm src/lab>src/store src/lab>fabric
""".split()
MUST_FAIL = """
src/base>src/io src/base>src/store src/base>shm src/compute>src/optim src/data>src/io
src/io>src/data src/optim>src/cluster src/cluster>src/optim src/nn>src/optim src/nn>src/store
src/nn>src/data src/store>src/nn src/store>src/compute src/store>shm src/store>fabric
src/store>src/train src/train>shm src/train>fabric src/train>src/cuda src/train>tools
shm>fabric shm>src/train shm>src/nn fabric>shm fabric>src/train
tools>src/cuda bench>src/cuda src/cuda>src/nn src/cuda>shm
tools>tests tools>bench tests>tools tests>bench bench>tools bench>tests
src/base>tests src/store>tools shm>bench fabric>tests
src/train>src/job shm>src/job fabric>src/job src/job>src/cuda src/job>tools src/job>src/lab
src/store>src/lab shm>src/lab src/train>src/lab src/lab>bench src/lab>tools src/lab>src/cuda
src/lab>src/job src/capi>src/lab src/job>src/capi tools>src/capi src/capi>tools
""".split()

# (file, text, line that must be reported or None, a word of the sentence)
CASES = [
    ("src/io/up.cc", '#include "../base/own.h"\n', 1, "relative"),
    ("src/io/dot.cc", '#include "./own.h"\n', 1, "relative"),
    ("src/io/absolute.cc", '#include "/usr/include/stdio.h"\n', 1, "absolute"),
    ("src/io/beside.cc", '\n#include "own.h"\n', 2, "beside"),
    ("src/io/double.cc", '#include "src/base/own.h"\n', 1, "two include roots"),
    ("src/io/angled.cc", "#include <base/own.h>\n", 1, "quotes"),
    ("src/io/unknown.cc", '#include "gtest/gtest.h"\n', 1, "no file of ours"),
    ("src/io/macro.cc", "#define FILE <vector>\n#include FILE\n", 2, "cannot be checked"),
    ("src/io/spaced.cc", '  #  include   "data/own.h"  // why\n', 1, "not allowed"),
    ("src/io/commented.cc", '/* #include "data/own.h"\n#include "data/own.h"\n*/\n'
                            '// #include "data/own.h"\n', None, ""),
    ("src/io/text.cc", 'auto a = R"(\n#include "data/own.h"\nCLOCK_REALTIME)";\n', None, ""),
    ("src/io/after_text.cc", "char q = '\"';\nint n = 1'000;\n#include \"data/own.h\"\n", 3,
     "not allowed"),
    ("src/io/fine.cc", '#include "io/own.h"\n#include <vector>\n#include <spdlog/spdlog.h>\n',
     None, ""),
    ("src/io/light.h", "#pragma once\n#include <fmt/core.h>\n", None, ""),
    ("src/io/forward.h", "#pragma once\n#include <nlohmann/json_fwd.hpp>\n", None, ""),
    ("src/io/formatted.h", "#pragma once\n#include <fmt/ranges.h>\n", 2, "heavy"),
    *[(f"src/io/heavy{i}.h", f"#pragma once\n\n#include <{name}>\n", 3, "heavy")
      for i, name in enumerate(["boost/interprocess/mapped_region.hpp", "cblas.h", "curl/curl.h",
                                "sodium.h", "openssl/evp.h", "spdlog/spdlog.h", "CLI/CLI.hpp",
                                "nlohmann/json.hpp"])],
    ("shm/heavy.h", "#pragma once\n#include <boost/version.hpp>\n", 2, "heavy"),
    ("tools/passel/heavy.h", "#pragma once\n#include <CLI/CLI.hpp>\n", None, ""),
    ("src/io/json_internal.h", "#pragma once\n#include <nlohmann/json.hpp>\n", None, ""),
    ("src/io/uses_internal.h", '#pragma once\n#include "io/json_internal.h"\n', 2, "internal"),
    ("src/io/uses_internal.cc", '#include "io/json_internal.h"\n', None, ""),
    ("src/io/bare.h", "int x;\n", 1, "#pragma once"),
    ("src/io/bare_comment.h", "// #pragma once\n", 1, "#pragma once"),
    ("src/io/clock.cc", "\nauto t = std::chrono::system_clock::now();\n", 2, "wall clock"),
    ("src/io/gettime.cc", "\n\nint a = f(CLOCK_REALTIME_COARSE);\n", 3, "wall clock"),
    ("shm/lock.cc", "void f() { m.timed_lock(t); }\n", 1, "wall clock"),
    ("tests/clock.cc", "int a = CLOCK_REALTIME;\n", 1, "wall clock"),
    ("src/base/clock.cc", "int a = CLOCK_REALTIME;\n", None, ""),
    ("src/base/log.cc", "int a = CLOCK_REALTIME;\n", None, ""),
    ("src/io/clock_talk.cc", "// unlike CLOCK_REALTIME\nint my_system_clock_;\n", None, ""),
    ("src/lost.cc", "int x;\n", 1, "no level"),
    ("src/novel/x.cc", "int x;\n", 1, "no level"),
    ("tests/unit/uses_root.cc", '#include "store_conformance.h"\n#include "tests/own.h"\n', None,
     ""),
    ("tests/store_conformance.h", "#pragma once\n", None, ""),
]


def self_test():
    failures = []

    def expect(condition, sentence):
        if not condition:
            failures.append(sentence)

    expect(table_cycle(ALLOWED) is None, f"ALLOWED has a cycle at {table_cycle(ALLOWED)}")
    expect(table_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}) is not None,
           "a cycle of the table goes unnoticed")

    with tempfile.TemporaryDirectory() as root:
        def write(path, text):
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)

        for folder in ALLOWED:
            write(own_header(folder), "#pragma once\n")
        pairs = {}
        for must_fail, pair in ([(False, p) for p in MUST_PASS] + [(True, p) for p in MUST_FAIL]):
            user, used = pair.split(">")
            path = f"{user}/uses_{used.replace('/', '_')}.cc"
            write(path, "\n" + include_line(own_header(used)))
            pairs[path] = must_fail
        for path, text, _, _ in CASES:
            write(path, text)
        write("src/data/a.h", '#pragma once\n#include "data/b.h"\n')
        write("src/data/b.h", '#pragma once\n\n#include "data/c.h"\n')
        write("src/data/c.h", '#pragma once\n#include "data/a.h"\n')

        errors = Checker(root).run()
        found = {}
        for path, line, sentence in errors:
            found.setdefault(path, []).append((line, sentence))
        for path, must_fail in pairs.items():
            got = found.pop(path, [])
            if must_fail:
                expect(len(got) == 1 and got[0][0] == 2 and "not allowed" in got[0][1],
                       f"{path} must break a rule in line 2, found: {got}")
            else:
                expect(not got, f"{path} must pass, found: {got}")
        for path, _, line, word in CASES:
            got = found.pop(path, [])
            if line is None:
                expect(not got, f"{path} must pass, found: {got}")
            else:
                expect(len(got) == 1 and got[0][0] == line and word in got[0][1],
                       f"{path} must be reported in line {line} with '{word}', found: {got}")
        circle = found.pop("src/data/c.h", [])
        expect(len(circle) == 1 and circle[0][0] == 2 and
               "src/data/a.h -> src/data/b.h -> src/data/c.h -> src/data/a.h" in circle[0][1],
               f"the circle of src/data must be reported once, found: {circle}")
        expect(not found, f"nothing else must be reported, found: {found}")

    for sentence in failures:
        print(f"check_includes.py --self-test: {sentence}", file=sys.stderr)
    print(f"include rules, self-test: {len(MUST_PASS) + len(MUST_FAIL) + len(CASES) + 3} cases, "
          f"{len(failures)} failed")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="the repository to check (default: the one of this script)")
    parser.add_argument("--self-test", action="store_true",
                        help="break every rule in a temporary tree and see that each is found")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    root = arguments.root or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if not os.path.isdir(os.path.join(root, "src")):
        parser.error(f"{root} has no folder src: name the root of the repository with --root")
    checker = Checker(os.path.normpath(root))
    errors = checker.run()
    for path, line, sentence in errors:
        print(f"{path}:{line}: {sentence}")
    includes = sum(len(edges) for edges in checker.edges.values())
    print(f"include rules: {len(checker.files)} files, {includes} includes of our own, "
          f"{len(errors)} broken rules")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
