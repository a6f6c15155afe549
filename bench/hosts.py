"""hosts - two hosts out of one machine: network namespaces with a cable (veth) between them."""

import ctypes
import os
import shutil
import signal
import subprocess
import time

from running import Failure


class Host:
    def __init__(self, holder, address):
        self.holder, self.address = holder, address
        self.enter = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def sh(self, command):
        done = subprocess.run([*self.enter, "sh", "-c", command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise Failure(f"no two hosts can be made here: {done.stderr.strip()}")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def hold():
    """A process in a network of its own."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
    ours = os.readlink("/proc/self/ns/net")
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        if os.readlink(f"/proc/{process.pid}/ns/net") != ours:
            return process
        time.sleep(0.01)
    process.kill()
    process.wait()
    raise Failure("no two hosts can be made here: that needs root")


class Hosts:
    """Until the program's end. Errors: Failure, where there is no ip or nsenter, or no right."""

    def __init__(self):
        for program in ("ip", "nsenter", "unshare"):
            if shutil.which(program) is None:
                raise Failure(f"no two hosts can be made here: there is no {program}")
        self.here = Host(hold(), "10.77.0.1")
        self.there = Host(hold(), "10.77.0.2")
        self.here.sh("ip link set lo up && ip link add cable type veth peer name cable2 && "
                     f"ip link set cable2 netns {self.there.holder.pid} && "
                     "ip addr add 10.77.0.1/24 dev cable && ip link set cable up")
        self.there.sh("ip link set lo up && ip addr add 10.77.0.2/24 dev cable2 && "
                      "ip link set cable2 up")
