#!/usr/bin/env python3
"""make_goldens.py - what `passel train --dry_run` must print for the machines of this folder.

Written from the rules of docs/gpus.md, not from the program. The first line of each golden is the
command's flags; the rest is the exact output.

usage: tests/data/topologies/make_goldens.py     (writes golden/ beside itself)
"""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1024 * 1024


def ranges(numbers):
    out, numbers = [], sorted(numbers)
    for number in numbers:
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


class Machine:
    def __init__(self, name):
        with open(os.path.join(HERE, name + ".json"), encoding="ascii") as file:
            self.json = json.load(file)
        self.nodes = {n["index"]: [[int(p) for p in core.split(",")] for core in n["cores"]]
                      for n in self.json["numa_nodes"]}

    def devices(self, gpus):
        """[(index, uuid, name, bytes, gpu number, is an instance)] of "all" or ["0", "1:2", ...]."""
        every = []
        for number, gpu in enumerate(self.json["gpus"]):
            if gpu.get("mig_enabled"):
                every += [(f"{number}:{i}", m["uuid"], m["name"], m["memory_bytes"], number, True)
                          for i, m in enumerate(gpu["mig_instances"])]
            else:
                every.append((str(number), gpu["uuid"], gpu["name"], gpu["memory_bytes"], number,
                              False))
        return every if gpus == "all" else [next(d for d in every if d[0] == g) for g in gpus]


def golden(name, case, flags, gpus=None, per_gpu=1, bind="auto", fraction=None, workers=2,
           evaluator=False, warnings=(), tail=(), arena=False, updates=None, no_arena=""):
    """`updates`: mode and updates as the log says them; `no_arena`: why not --arena device."""
    machine = Machine(name)
    devices = machine.devices(gpus) if gpus else []
    count = len(devices) * per_gpu if devices else workers
    chosen = [devices[i % len(devices)] if devices else None for i in range(count)]
    only_node = next(iter(machine.nodes)) if len(machine.nodes) == 1 else None

    def near(device):
        if only_node is not None:
            return only_node
        return machine.json["gpus"][device[4]].get("numa_node")

    if bind == "auto":
        if not devices:
            bind = "core"  # all machines here have enough
        else:
            known = all(near(d) is not None for d in chosen)
            bind = "numa" if len(machine.nodes) > 1 and known else "none"
    places = []  # (node, processors)
    next_core = {n: 0 for n in machine.nodes}
    for i, device in enumerate(chosen):
        if bind == "none":
            places.append(("-", "any"))
        elif bind == "numa":
            places.append((near(device), ranges(sum(machine.nodes[near(device)], []))))
        elif device is None:  # one thread of each core first
            first = sorted(core[0] for cores in machine.nodes.values() for core in cores)
            places.append(("-", str(first[i])))
        else:
            node = near(device)
            if node is None:
                node = next(n for n in machine.nodes if next_core[n] < len(machine.nodes[n]))
            core = machine.nodes[node][next_core[node]]
            next_core[node] += 1
            places.append(("-" if len(machine.nodes) == 1 else node, ranges(core)))
    nodes = {place[0] for place in places}
    ps_place = places[0] if bind == "numa" and len(nodes) == 1 else ("-", "any")

    limits = [None if fraction is None or d is None else int(fraction * d[3]) // MIB
              for d in chosen]
    rows = [("task", "GPU", "UUID", "NUMA", "processors", "GPU memory"),
            ("ps/0", "-", "-", str(ps_place[0]), ps_place[1], "-")]
    for i, device in enumerate(chosen):
        memory = "-" if device is None else "no limit" if limits[i] is None else f"{limits[i]} MiB"
        rows.append((f"worker/{i}", device[0] if device else "-", device[1] if device else "-",
                     str(places[i][0]), places[i][1], memory))
    if evaluator:
        rows.append(("evaluator/0", "-", "-", "-", "any", "-"))
    uuids, processors = (max(len(row[c]) for row in rows) for c in (2, 4))
    text = "".join(f"{t:<12} {g:<6} {u:<{uuids}}  {n:<5} {p:<{processors}}  {m}\n"
                   for t, g, u, n, p, m in rows)
    text += f"binding: {bind}\n"
    if devices:
        text += "environment of ps/0: CUDA_VISIBLE_DEVICES=\n"
        for i, device in enumerate(chosen):
            text += (f"environment of worker/{i}: CUDA_DEVICE_ORDER=PCI_BUS_ID "
                     f"CUDA_VISIBLE_DEVICES={device[1]}")
            if arena and device != devices[0]:
                text += f",{devices[0][1]}"
            if limits[i] is not None and machine.json["mps"] != "stopped":
                text += f" CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={limits[i]}M"
            text += "\n"
        if evaluator:
            text += "environment of evaluator/0: CUDA_VISIBLE_DEVICES=\n"
    for i, device in enumerate(chosen):
        if device is None:
            continue
        gpu = machine.json["gpus"][device[4]]
        line = f"worker/{i}: GPU {device[0]} ({device[2]}, {device[1]}, PCI {gpu['pci_address']})"
        if len(machine.nodes) > 1:
            line += (f" at NUMA node {gpu['numa_node']}" if "numa_node" in gpu
                     else " at a NUMA node that is not known")
        line += (", bound to no processors" if places[i][1] == "any"
                 else f", bound to processors {places[i][1]}")
        peers = {True: set(), False: set()}
        for other in chosen:
            for link in machine.json["links"]:
                if (sorted(link["gpus"]) == sorted({device[4], other[4]}) and link["peer_access"]
                        and not device[5] and not other[5]):
                    peers[link["nvlink"]].add(other[4])
        if peers[True]:
            line += ", NVLink to GPU " + ranges(peers[True])
        if peers[False]:
            line += ", PCIe peer access to GPU " + ranges(peers[False])
        if arena:
            line += f", parameters in the memory of GPU {devices[0][0]}"
        if limits[i] is not None:
            line += f", memory limit {limits[i]} MiB"
        text += line + "\n"
    if devices:
        each = (f"{count} workers each make" if count > 1 else "1 worker makes")
        text += (f"parameters in the memory of GPU {devices[0][0]} (--arena device); " if arena
                 else "parameters in host memory (--arena host); ")
        text += updates or (f"hogwild: {each} updates of 100 examples"
                            + (", without waiting for each other" if count > 1 else ""))
        text += ("; --arena host would keep them in host memory\n" if arena
                 else f"; --arena device would be refused: {no_arena}\n" if no_arena
                 else f"; --arena device would keep them in the memory of GPU {devices[0][0]}\n")
    text += "".join(line + "\n" for line in tail)
    text += "".join(f"warning: {warning}\n" for warning in warnings)
    os.makedirs(os.path.join(HERE, "golden"), exist_ok=True)
    with open(os.path.join(HERE, "golden", f"{name}.{case}.txt"), "w", encoding="ascii") as file:
        file.write(f"{flags} --topology {name}.json\n{text}")


TURNS = ("{} workers share GPU {} and MPS is not running, so they take turns on it, slower than one alone: start it "
         "first with  nvidia-cuda-mps-control -d  , or use fewer workers")

NO_NVLINK = "GPU {} has no NVLink, but a PCIe path ({}), to GPU {}"

golden("dgx-h100", "all", "--gpus all", "all")
golden("dgx-h100", "core", "--gpus all --bind core", "all", bind="core")
golden("dgx-h100", "reversed", "--gpus 5,1 --bind none", ["5", "1"], bind="none")
golden("dgx-h100", "shared", "--gpus 0,4 --workers_per_gpu 2 --evaluator "
       "--per_process_gpu_memory_fraction 0.4", ["0", "4"], per_gpu=2, fraction=0.4, evaluator=True,
       warnings=[TURNS.format(2, 0)])
golden("dgx-h100", "auto", "--workers 4", ["0", "1", "2", "3"])
golden("dgx-h100", "default", "", ["0", "1"])
golden("dgx-h100", "default-of-one", "--num_gpus 1", ["0"],
       updates="hogwild: 1 worker makes updates of 100 examples")
golden("dgx-h100", "barrier", "--gpus all --mode barrier --batch_size 64", "all",
       updates="barrier: one update a round, from 8 x 64 = 512 examples",
       no_arena="barrier has rounds")
golden("dgx-h100", "schedule", "--gpus 2,3 --mode_schedule 0:locked,300:replicas=1,900:hogwild",
       ["2", "3"],
       updates="locked until step 300, then as --mode_schedule says: 2 workers each make updates of "
               "100 examples, waiting for each other block by block alone",
       no_arena="replicas, from step 300 on, has rounds")
golden("dgx-h100", "one", "--gpus 4 --batch_size 128", ["4"],
       updates="hogwild: 1 worker makes updates of 128 examples")
golden("a100-pcie-4", "all", "--gpus all", "all", no_arena=NO_NVLINK.format(1, "NODE", 0))
golden("a100-pcie-4", "one-node", "--gpus 2,3", ["2", "3"],
       no_arena=NO_NVLINK.format(3, "NODE", 2))
golden("a100-pcie-4", "locked", "--gpus 1 --workers_per_gpu 2 --mode locked", ["1"], per_gpu=2,
       updates="locked: 2 workers each make updates of 100 examples, waiting for each other block by "
               "block alone",
       no_arena="under MPS workers in locked cannot share a GPU")
golden("a100-pcie-4", "mps", "--gpus all --workers_per_gpu 3 --per_process_gpu_memory_fraction 0.25",
       "all", per_gpu=3, fraction=0.25, no_arena=NO_NVLINK.format(1, "NODE", 0))
for case, bind in (("all", "auto"), ("core", "core"), ("numa", "numa")):
    golden("rtx4090-pcie-2", case, "--gpus all" + (f" --bind {bind}" if bind != "auto" else ""),
           "all", bind=bind, no_arena=NO_NVLINK.format(1, "PHB", 0))
golden("h100-mig", "all", "--gpus all", "all", no_arena="GPU 0:0 is a MIG instance")
golden("h100-mig", "some", "--gpus 0:2,1,0:5", ["0:2", "1", "0:5"],
       no_arena="GPU 0:2 is a MIG instance")
golden("a100-vm-4", "all", "--gpus all", "all")
golden("a100-vm-4", "core", "--gpus all --bind core", "all", bind="core")
golden("a100-vm-4", "shared", "--gpus 3 --workers_per_gpu 2", ["3"], per_gpu=2,
       warnings=["2 workers share GPU 3 and it cannot be seen whether MPS is running, without which "
                 "they take turns on it: start it with  nvidia-cuda-mps-control -d  if it is not"])
golden("dgx-h100", "arena", "--gpus all --arena device", "all", arena=True)
golden("dgx-h100", "arena-reversed", "--gpus 6,2 --workers_per_gpu 2 --arena device --bind none",
       ["6", "2"], per_gpu=2, bind="none", arena=True, warnings=[TURNS.format(2, 6)])
golden("dgx-h100", "arena-fewer", "--device cuda --workers 2 --arena device", ["0", "1"], arena=True)
golden("a100-vm-4", "arena", "--gpus 3,1 --arena device --per_process_gpu_memory_fraction 0.5",
       ["3", "1"], fraction=0.5, arena=True)
golden("a100-bridge-4", "all", "--gpus all", "all", no_arena=NO_NVLINK.format(2, "SYS", 0))
golden("a100-bridge-4", "arena", "--gpus 2,3 --arena device", ["2", "3"], arena=True)
golden("h100-mig", "arena", "--gpus 1 --workers_per_gpu 2 --arena device", ["1"], per_gpu=2,
       arena=True, warnings=[TURNS.format(2, 1)])
golden("no-gpu", "auto", "--workers 3", workers=3,
       tail=["computing on the CPU: no NVIDIA driver is installed, since libnvidia-ml.so.1 is not "
             "there"])
