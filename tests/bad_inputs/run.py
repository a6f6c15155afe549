#!/usr/bin/env python3
"""Gives every bad input of the table to the program, and checks what it answers and leaves behind.

    run.py --program build/release/bin/passel [--instrumented] [--show] [--jobs N] [THEME | ROW]...

Every row must end in time with its exit code, in one line on standard error that is one sentence
and holds what the row says, and must leave no process, socket, file in /dev/shm, token file or
temporary file, nor change a file. Exit codes: 0 all rows are as they should be; 1 some are not.
Several rows run at once, each in a process of its own.
"""

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import place
import samples
from row import words
from table import THEMES

# The time (of day, with or without a date and a zone, or in seconds), the level, the task.
LOG_LINE = re.compile(
    r"(?:[0-9-]+[ T])?[0-9][0-9:.,]*(?:Z|[ ]?[+-][0-9]{2}:?[0-9]{2})? ([DIWE]) (?:\[[^ ]+\] )?")
PROGRESS_LINE = re.compile(r"step [0-9]+/")
# Of the command line: "passel train: ".
USAGE_LINE = re.compile(r"passel(?: [a-z-]+)*: ")
# Words of libraries and of bugs, which say nothing to a user.
INTERNAL = ("what()", "terminate called", "std::", "exception", "Assertion", "Segmentation",
            "Sanitizer", "nlohmann", "[json", "basic_string", "CLI::", "yaml-cpp", "errno",
            "core dumped", "CHECK failed")
FOLDERS = ("work", "run", "home", "tmp")  # of each row
MAX_SENTENCE = 700  # characters
ENDS_WITHIN, SETTLES_WITHIN = 20.0, 3.0  # seconds, on an idle machine


def crowd():
    """How many times longer things may take beside whatever else runs."""
    scale = float(os.environ.get("PASSEL_TEST_TIME_SCALE", "1"))
    return scale * min(8.0, max(1.0, 2 * os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def judge_text(row, text):
    """Complaints about standard error, which must hold one sentence."""
    complaints, sentences, warnings = [], [], []
    if text and not text.endswith("\n"):
        complaints.append("the last line does not end")
    lines = text.split("\n")
    for line in lines if lines[-1] else lines[:-1]:
        if row.info and PROGRESS_LINE.match(line):
            continue
        log = LOG_LINE.match(line)
        level = log.group(1) if log else "E"
        if level == "E":
            usage = USAGE_LINE.match(line)
            sentences.append(line[(log or usage).end():] if log or usage else line)
            if not log and not usage:
                complaints.append("the line begins like no line of passel")
        elif level == "W":
            warnings.append(line)
        elif not row.info:
            complaints.append(f"a line that says more than the sentence: {line}")
    if row.warns and not any(row.warns in line for line in warnings):
        complaints.append(f"no warning says {row.warns!r}")
    elif warnings and not row.warns:
        complaints.append(f"a warning that the row does not ask for: {warnings[0]}")
    if len(sentences) != 1:
        return complaints + [f"{len(sentences)} sentences instead of one"], sentences
    sentence = sentences[0]
    at = 0
    for words in row.says:
        found = sentence.find(words, at)
        if found < 0:
            complaints.append(f"the sentence does not say {words!r}" +
                              (" where it should" if words in sentence else ""))
        else:
            at = found + len(words)
    complaints += [f"the sentence says {word!r}" for word in INTERNAL if word in sentence]
    if not sentence.isprintable():
        complaints.append("the sentence has characters that a terminal does not print")
    if len(sentence) > MAX_SENTENCE:
        complaints.append(f"the sentence has {len(sentence)} characters")
    if not row.reference and re.search(r"[a-z0-9)\"'][.!] +[A-Z]", sentence):
        complaints.append("there are two sentences")
    return complaints, sentences


class Run:
    """One row in this process, which ends with it."""

    def __init__(self, row, number, program, shared):
        self.row = row
        self.scale = crowd()
        self.top = os.path.join(shared["top"], f"row-{number}")
        self.places = {name: os.path.join(self.top, name) for name in FOLDERS}
        self.places.update(job=f"bad-{os.getpid()}", digits=shared["digits"],
                           model=shared["model"])
        self.program = program
        self.as_nobody = row.nobody and os.getuid() == 0
        self.outputs = {}

    def fill(self, text):
        for name, value in self.places.items():
            text = text.replace("{" + name + "}", value)
        return text

    def prepare(self):
        for name in FOLDERS:
            os.makedirs(self.places[name], mode=0o700)
        for name, content in self.row.files.items():
            path = os.path.join(self.places["work"], name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if callable(content):
                content(path)
            else:
                with open(path, "wb") as file:
                    file.write(content if isinstance(content, bytes)
                               else self.fill(content).encode())
        if self.as_nobody:
            os.chmod(self.top, 0o755)
            for name in FOLDERS:
                samples.give_to_nobody(self.places[name])

    def start(self, what, command, shell=""):
        """Its output goes to files, so that whoever is left may write on."""
        argv = [self.program] + [self.fill(word) for word in words(command)]
        if shell:
            argv = ["/bin/sh", "-c", self.fill(shell) + '; exec "$@"', "sh"] + argv
        env = {"PATH": os.environ["PATH"], "HOME": self.places["home"], "LC_ALL": "C",
               "XDG_RUNTIME_DIR": self.places["run"], "TMPDIR": self.places["tmp"],
               # Nothing is downloaded in a test.
               "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update({name: self.fill(value) for name, value in self.row.env.items()})
        env = {name: value for name, value in env.items() if value != "(unset)"}
        self.outputs[what] = [os.path.join(self.top, f"{what}.{n}") for n in ("out", "err")]
        as_user = {"user": samples.NOBODY, "group": samples.NOBODY, "extra_groups": []}
        stdin = subprocess.PIPE if self.row.stdin else subprocess.DEVNULL
        with open(self.outputs[what][0], "wb") as out, open(self.outputs[what][1], "wb") as err:
            process = subprocess.Popen(argv, cwd=self.places["work"], env=env, stdin=stdin,
                                       stdout=out, stderr=err, start_new_session=True,
                                       **(as_user if self.as_nobody else {}))
        if self.row.stdin:
            with contextlib.suppress(BrokenPipeError):  # a refused flag: nobody reads it
                process.stdin.write(self.row.stdin)
                process.stdin.close()
        return process

    def output(self, what, which):
        with open(self.outputs[what][which], encoding="utf-8", errors="backslashreplace") as file:
            return file.read()

    def finish(self, process, what, code):
        end = os.pidfd_open(process.pid)  # Popen.wait() with a timeout sleeps up to 50 ms too long
        try:
            ready, _, _ = select.select([end], [], [], ENDS_WITHIN * self.scale)
        finally:
            os.close(end)
        if not ready:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return [f"{what} did not end within {ENDS_WITHIN * self.scale:.0f} s"]
        ended = process.wait()
        return [] if ended == code else [f"{what} ended with {ended} instead of {code}"]

    def wait_until_ready(self, process):
        end = time.monotonic() + ENDS_WITHIN * self.scale
        while time.monotonic() < end and process.poll() is None:
            if any(self.row.beside_says in self.output("beside", which) for which in (0, 1)):
                return []
            time.sleep(0.002)
        return [f"the program beside did not say {self.row.beside_says!r}"]

    def result(self):
        place.adopt_orphans()
        own = place.own_name_spaces()
        self.prepare()
        left = place.Leftovers([self.places[n] for n in FOLDERS], [self.places["job"]], own)
        complaints, beside = [], None
        if self.row.beside:
            beside = self.start("beside", self.row.beside)
            complaints += self.wait_until_ready(beside)
        process = self.start("program", self.row.command, self.row.shell)
        complaints += self.finish(process, "the program", self.row.code)
        if beside:
            if beside.poll() is not None:
                complaints.append("the program beside has ended")
            else:
                beside.send_signal(signal.SIGINT)
                complaints += self.finish(beside, "the program beside", self.row.beside_code)
        may_stay = {os.path.join(self.places["work"], name) for name in self.row.stays}
        complaints += left.complaints(SETTLES_WITHIN * self.scale, may_stay)
        text, out = self.output("program", 1), self.output("program", 0)
        if self.row.code == 0:
            judged, sentences = [], [text.strip()]
        else:
            filled = type(self.row)(**{**vars(self.row),
                                       "says": tuple(self.fill(w) for w in self.row.says)})
            judged, sentences = judge_text(filled, text)
        complaints += judged
        if (self.row.out not in out) if self.row.out else out:
            complaints.append(f"standard output holds {out[:300]!r}")
        return {"complaints": complaints, "sentences": sentences, "text": text}


def run_row(row, number, program, shared, pipe):
    """The child's part. Never returns."""
    try:
        result = Run(row, number, program, shared).result()
    except Exception:  # a defect of the runner: told as such, for this row
        result = {"complaints": [traceback.format_exc()], "sentences": [], "text": ""}
    with os.fdopen(pipe, "w") as file:
        json.dump(result, file)
    os._exit(0)


def skipped(row, instrumented):
    if row.root and os.getuid() != 0:
        return "only root can make this input"
    if row.plain_memory and instrumented:
        return "a sanitizer reserves terabytes of address space"
    return ""


def run_rows(rows, program, shared, jobs):
    """Yields row and result, in the order in which they end."""
    waiting, running, number = list(reversed(rows)), {}, 0
    while waiting or running:
        while waiting and len(running) < jobs:
            row = waiting.pop()
            number += 1
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                run_row(row, number, program, shared, writing)
            os.close(writing)
            running[pid] = (row, reading)
        pid, _ = os.waitpid(-1, 0)
        row, reading = running.pop(pid)
        with os.fdopen(reading) as file:
            text = file.read()
        yield row, json.loads(text) if text else {
            "complaints": ["the runner died"], "sentences": [], "text": ""}


def choose(names):
    """The rows of the themes or with the names."""
    rows = {(theme, row.name): row for theme, rows in THEMES.items() for row in rows}
    chosen = [key for key in rows if not names or key[0] in names or key[1] in names]
    unknown = [n for n in names if not any(n in key for key in chosen)]
    if unknown:
        raise SystemExit(f"run.py: neither a theme nor a row: {', '.join(unknown)}; themes are "
                         f"{', '.join(THEMES)}")
    return [rows[key] for key in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True, type=os.path.abspath)
    parser.add_argument("--instrumented", action="store_true", help="a sanitizer is built in")
    parser.add_argument("--show", action="store_true", help="print every sentence")
    parser.add_argument("--jobs", type=int, default=2, help="rows at once")
    parser.add_argument("names", nargs="*", help="themes or rows; all where none is named")
    flags = parser.parse_args()
    rows, failed, left_out = choose(flags.names), 0, 0
    top = tempfile.mkdtemp(prefix="passel-bad-inputs.")
    os.chmod(top, 0o755)
    try:
        shared = samples.shared_files(top)
        for row in rows:
            if reason := skipped(row, flags.instrumented):
                left_out += 1
                print(f"{row.name}: left out: {reason}")
        chosen = [row for row in rows if not skipped(row, flags.instrumented)]
        for row, result in run_rows(chosen, flags.program, shared, flags.jobs):
            if flags.show:
                print(f"{row.name}: {' | '.join(result['sentences'])}")
            if result["complaints"]:
                failed += 1
                print(f"FAILED {row.name}: passel {row.command}")
                for complaint in result["complaints"]:
                    print(f"    {complaint}")
                print("    it wrote: " + result["text"].rstrip("\n").replace("\n", "\n        "))
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f"{len(rows)} rows, {failed} failed, {left_out} left out")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
