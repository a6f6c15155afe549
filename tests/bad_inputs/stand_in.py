"""A program that answers a bad input well, or misbehaves in the way that its argument names."""

import os
import socket
import subprocess
import sys
import time

GOOD = "12:34:56.789 E --size is 1 to 9, not 10: use --size=9"
RUN, HOME, TMP = (os.environ[name] for name in ("XDG_RUNTIME_DIR", "HOME", "TMPDIR"))


def say(text):
    sys.stderr.write(text + "\n")


def stay():
    subprocess.Popen(["sleep", "60"], start_new_session=True)


def listen():
    if os.fork() == 0:
        os.setsid()
        server = socket.socket(socket.AF_UNIX)
        server.bind("\0passel.0.some-job.ps.0")
        time.sleep(60)
    time.sleep(0.2)


deeds = {
    "well": lambda: say(GOOD),
    "iso": lambda: say("2026-11-21 12:34:56.789+01:00" + GOOD[12:]),
    "epoch": lambda: say("1795264496.789" + GOOD[12:]),
    "task": lambda: say("2026-11-21T12:34:56.789Z E [worker/0]" + GOOD[14:]),
    "usage": lambda: say("passel ctl list: --size is 1 to 9, not 10"),
    "twice": lambda: (say(GOOD), say(GOOD)),
    "silent": lambda: None,
    "other": lambda: say("12:34:56.789 E --size is wrong"),
    "two_sentences": lambda: say(GOOD + " or more. Another one follows"),
    "internal": lambda: say(GOOD + ": std::bad_alloc"),
    "bare": lambda: say("--size is 1 to 9, not 10"),
    "information": lambda: (say("12:34:56.789 I reading"), say(GOOD)),
    "warning": lambda: (say("12:34:56.789 W beware"), say(GOOD)),
    "escape": lambda: say(GOOD + "\x1b[7m"),
    "unended": lambda: sys.stderr.write(GOOD),
    "output": lambda: (say(GOOD), print("hello")),
    "process": lambda: (say(GOOD), stay()),
    "socket": lambda: (say(GOOD), listen()),
    "shm": lambda: (say(GOOD), open("/dev/shm/passel-stand-in", "w").close()),
    "file": lambda: (say(GOOD), open("m.tmp.1", "w").close()),
    "token": lambda: (say(GOOD), os.mkdir(RUN + "/passel"),
                      open(RUN + "/passel/t.token", "w").close()),
    "temporary": lambda: (say(GOOD), open(TMP + "/x", "w").close()),
    "cache": lambda: (say(GOOD), open(HOME + "/x", "w").close()),
    "change": lambda: (say(GOOD), open("input", "w").write("other")),
    "remove": lambda: (say(GOOD), os.unlink("input")),
    "code": lambda: (say(GOOD), sys.exit(1)),
    "signal": lambda: (say(GOOD), os.kill(os.getpid(), 11)),
    "hang": lambda: (say(GOOD), time.sleep(60)),
}
deeds[sys.argv[1]]()
sys.exit(2)
