#!/usr/bin/env python3
"""usage: docs_commands_test.py BUILD: what README.md and docs/ tell people to type does what it says.

Every block of commands there has one of these marks behind its ```sh:

    run              the block is run as one script
    run together     its commands are run at once, one terminal each, after the lines that set variables
    not-run: REASON  it is not, since it needs what no test may have

and a comment before the block exempts some lines of it: <!-- not-run: REASON: HOW THE LINES BEGIN -->

A script runs in a folder that has what the pages speak of: build/release and the sources, a saved model
(model.safetensors), pictures (digit.png, scan.png), images (t10k-images-idx3-ubyte.gz), a data set (DIR)
and a running job (my-job). Training there ends after STEPS steps unless the command says when.
"""

import dataclasses
import gzip
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]
STEPS = 100
SECONDS = 60  # for one block
MOST_NOT_RUN = 88  # commands: raise it for a new one that no test can run

# What a line of a command begins with; of a line of output it does not.
COMMAND = re.compile(r"(passel|git|cmake|ctest|nsys|ncu|(tools|bench|tests|\.ci)/\S+|\./\S+|[A-Z_]+=\S+)( |$)")
EXEMPTION = re.compile(r"<!-- not-run: ([^:]+): (.+) -->")

# The program, which trains a little only.
WRAPPER = """#!/bin/sh
case " $* " in
*" --train_steps"*|*" --dry_run"*|*" --print_"*) ;;
*) case $1 in train|launch|task) set -- "$@" --train_steps {steps} ;; esac ;;
esac
exec {program} "$@"
"""


@dataclasses.dataclass
class Block:
    place: str  # "docs/modes.md:12"
    mark: str
    commands: list  # each one line, or several that \\ joins
    exempt: list  # pairs of a reason and the beginning of commands

    def reason_of(self, command):
        """Why this command is not run; None: it is."""
        if self.mark.startswith("not-run:"):
            return self.mark.removeprefix("not-run:").strip()
        return next((why for why, start in self.exempt if command.startswith(start)), None)

    def to_run(self):
        return [command for command in self.commands if self.reason_of(command) is None]


def joined(lines):
    """Lines of a script as commands: those that go on in the next line or inside quotes are one."""
    commands, open_command = [], ""
    for line in lines:
        open_command += line
        if line.endswith("\\") or open_command.count("'") % 2 == 1:
            open_command += "\n"
        elif open_command.strip():
            commands.append(open_command)
            open_command = ""
        else:
            open_command = ""
    return commands


def blocks_of(page):
    """The fenced blocks of a page that are marked or look like commands."""
    lines = page.read_text().splitlines()
    found, at = [], 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        end = lines.index("```", at + 1)
        language, _, mark = lines[at][3:].partition(" ")
        body = lines[at + 1:end]
        if language == "sh" or (language == "" and any(COMMAND.match(line) for line in body)):
            above = at - 1
            exempt = []
            while above >= 0 and (comment := EXEMPTION.fullmatch(lines[above])):
                exempt.append(comment.groups())
                above -= 1
            found.append(Block(f"{page.relative_to(SOURCE)}:{at + 1}", mark, joined(body), exempt))
        at = end + 1
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


class DocsCommands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="passel-docs-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name).resolve()
        for name in ("tools", "tests", "bench"):
            (cls.folder / name).symlink_to(SOURCE / name)
        (cls.folder / "build").mkdir()
        (cls.folder / "build/release").symlink_to(BUILD)
        (cls.folder / "path").mkdir()
        wrapper = cls.folder / "path/passel"
        wrapper.write_text(WRAPPER.format(steps=STEPS, program=BUILD / "bin/passel"))
        wrapper.chmod(0o755)
        runtime = cls.folder / "runtime"
        runtime.mkdir(mode=0o700)
        cls.environment = {
            "PATH": f"{wrapper.parent}:{os.environ['PATH']}", "HOME": str(cls.folder),
            "XDG_RUNTIME_DIR": str(runtime), "PASSEL_DATA_DIR": str(cls.folder / "DIR"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }
        cls.make("passel data generate DIR --train 6000 --test 1000")
        cls.make("passel train --workers 1 --validation_size 500 --save saved")
        images = next((cls.folder / "DIR").glob("t10k-images*"))
        pixels = (gzip.decompress(images.read_bytes()) if images.suffix == ".gz" else images.read_bytes())
        with gzip.open(cls.folder / "t10k-images-idx3-ubyte.gz", "wb") as file:
            file.write(pixels)
        for name in ("digit", "scan"):
            cls.picture(cls.folder / f"{name}.png", pixels[16:16 + 784])

    @classmethod
    def make(cls, command):
        subprocess.run(command, shell=True, cwd=cls.folder, env=cls.environment, check=True,
                       timeout=SECONDS, capture_output=True)

    @staticmethod
    def picture(path, pixels):
        """A grey PNG of 28 x 28 pixels (W3C, PNG, 5: signature, IHDR, IDAT, IEND)."""

        def chunk(kind, data):
            return (struct.pack(">I", len(data)) + kind + data
                    + struct.pack(">I", zlib.crc32(kind + data)))
        rows = b"".join(b"\0" + pixels[row * 28:row * 28 + 28] for row in range(28))
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
                         + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

    def run_script(self, script):
        shutil.copy(self.folder / "saved", self.folder / "model.safetensors")
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.environment,
                                     stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = child.wait(SECONDS)
            except subprocess.TimeoutExpired:
                code = f"none after {SECONDS} s"
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            output.seek(0)
            self.assertEqual(code, 0, f"{script}\n{output.read()[-3000:]}")

    def running_job(self):
        job = subprocess.Popen(
            ["build/release/bin/passel", "train", "--workers", "2", "--max_workers", "4", "--job_id", "my-job",
             "--train_steps", "100000000"], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        self.run_script("for i in $(seq 200); do "
                        "passel predict --job my-job --limit 1 t10k-images-idx3-ubyte.gz && exit 0; "
                        "sleep 0.05; done; exit 1")

    def test_every_block_of_commands_has_a_mark(self):
        for block in BLOCKS:
            with self.subTest(block.place):
                self.assertRegex(block.mark, r"^(run|run together|not-run: \S.*)$")
                for why, start in block.exempt:
                    self.assertTrue(any(c.startswith(start) for c in block.commands),
                                    f"no command begins with {start} ({why})")

    def test_what_is_not_run_is_counted(self):
        not_run = [c for b in BLOCKS for c in b.commands if b.reason_of(c) is not None]
        run = [c for b in BLOCKS for c in b.to_run()]
        print(f"{len(run)} commands of README and docs are run, {len(not_run)} are not")
        self.assertGreater(len(run), 20)
        self.assertLessEqual(len(not_run), MOST_NOT_RUN)

    def test_the_others_work(self):
        for block in BLOCKS:
            commands = block.to_run()
            if not commands or block.mark.startswith("not-run"):
                continue
            with self.subTest(block.place):
                if any("my-job" in c or "ctl set" in c for c in commands):
                    self.running_job()
                if block.mark == "run together":
                    commands = [c if re.match(r"(export )?\w+=", c) else f"{c.split(' #')[0]} & pids+=($!)"
                                for c in commands]
                    commands.append("for pid in ${pids[@]}; do wait $pid; done")
                self.run_script("set -e\n" + "\n".join(commands))
                self.doCleanups()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
