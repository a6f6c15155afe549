"""A place for one row: folders, name spaces and processes of its own, and what is left in them.

A row runs in a process of its own that adopts the orphans of the program (a subreaper), so that a
process that is left is a child, however it was started. Where that is allowed (root), the network
and /dev/shm are the row's own, too, so that every socket and every file in them is the program's.
"""

import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import time

CLONE_NEWNS, CLONE_NEWNET, MS_REC_PRIVATE = 0x00020000, 0x40000000, 0x4000 | 0x40000
PR_SET_CHILD_SUBREAPER = 36
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans():
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def own_name_spaces():
    """Takes a network (with a loopback alone) and a /dev/shm of our own; False: not allowed."""
    if os.getuid() != 0 or LIBC.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        return False
    if LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "mount --make-rprivate /")
    if LIBC.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") != 0:
        raise OSError(ctypes.get_errno(), "mount tmpfs on /dev/shm")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(s, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    return True


def sockets():
    """The abstract sockets of passel that this process can see."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        return {line.split("@", 1)[1].strip() for line in file if "@passel." in line}


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "passel" in name or name.startswith("sem.")}


def tree(*folders):
    """What is below `folders`, by path: kind, size, time of the last change, contents of a link."""
    seen = {}
    for folder in folders:
        for path, names, files in os.walk(folder):
            for name in names + files:
                full = os.path.join(path, name)
                status = os.lstat(full)
                link = os.readlink(full) if os.path.islink(full) else ""
                size = 0 if os.path.isdir(full) else status.st_size
                changed = 0 if os.path.isdir(full) else status.st_mtime_ns
                seen[full] = (status.st_mode, size, changed, link)
    return seen


def children():
    """pid and command line of our children that live."""
    found = {}
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        pids = [int(pid) for pid in file.read().split()]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found[pid] = file.read().replace(b"\0", b" ").decode(errors="replace")
        except FileNotFoundError:
            continue
    return found


def reap_all(seconds):
    """Waits until no child is left; those that live after `seconds` are killed and returned."""
    end = time.monotonic() + seconds
    left = {}
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return left
        if pid != 0:
            continue
        if time.monotonic() > end:
            alive = children()
            left.update(alive)
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


class Leftovers:
    """What was there before the program ran, to be compared with what is there afterwards."""

    def __init__(self, folders, marks, own):
        self.folders, self.marks, self.own = folders, marks, own
        self.tree, self.shared, self.sockets = tree(*folders), shared_memory(), sockets()

    def complaints(self, seconds, may_stay):
        found = [f"process left: {pid} {line}" for pid, line in reap_all(seconds).items()]
        for name in sockets() - self.sockets:
            if self.own or any(mark in name for mark in self.marks):
                found.append(f"socket left: {name}")
        found += [f"file left: /dev/shm/{name}" for name in shared_memory() - self.shared]
        now = tree(*self.folders)
        for path in sorted(now.keys() | self.tree.keys()):
            if now.get(path) == self.tree.get(path) or path in may_stay:
                continue
            change = ("left" if path not in self.tree else
                      "gone" if path not in now else "changed")
            # The empty folder of token files is kept for the next job.
            if change == "left" and re.search(r"/run/passel$", path) and os.path.isdir(path):
                continue
            found.append(f"file {change}: {path}")
        return found
