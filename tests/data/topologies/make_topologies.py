#!/usr/bin/env python3
"""make_topologies.py - writes the machines of this folder, as `passel topology --json` would.

Made by hand from published layouts (README.md); no machine was read. UUIDs are invented.

usage: tests/data/topologies/make_topologies.py     (writes beside itself)
"""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1024 * 1024


def uuid(prefix, number):
    """An invented UUID whose letters differ from the first on."""
    digits = "".join("0123456789abcdef"[(number * 7 + 5 * i + i * i) % 16] for i in range(32))
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def node(index, first, cores, second=None):
    """`cores` cores from processor `first`; their second threads begin at `second`."""
    names = [str(first + i) if second is None else f"{first + i},{second + i}"
             for i in range(cores)]
    return {"index": index, "cores": names}


def gpu(number, name, mib, capability, pci, numa_node=None):
    out = {"uuid": uuid("GPU", number), "name": name, "memory_bytes": mib * MIB,
           "compute_capability": capability, "pci_address": f"0000:{pci}:00.0"}
    if numa_node is not None:
        out["numa_node"] = numa_node
    return out


def links(count, path, nvlink, peer_access, peer_atomics):
    """`path(a, b)` is the PCIe path between two GPUs."""
    return [{"gpus": [a, b], "pcie_path": path(a, b), "nvlink": nvlink,
             "peer_access": peer_access, "peer_atomics": peer_atomics}
            for a in range(count) for b in range(a + 1, count)]


def write(name, comment, nodes, gpus, link_list, **more):
    parts = [f'  "passel_topology": 1', f'  "comment": {json.dumps(comment)}']
    parts += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in more.items()]
    for key, values in (("numa_nodes", nodes), ("gpus", gpus), ("links", link_list)):
        lines = ",\n".join("    " + json.dumps(v) for v in values)
        parts.append(f'  "{key}": [\n{lines}\n  ]' if values else f'  "{key}": []')
    with open(os.path.join(HERE, name + ".json"), "w", encoding="ascii") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


H100 = ("NVIDIA H100 80GB HBM3", 81559, "9.0")
DRIVER = {"driver_version": "580.65.06", "cuda_version": "13.0"}

halves = [node(0, 0, 56, 112), node(1, 56, 56, 168)]
buses = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
write("dgx-h100", "8 H100 behind NVSwitches, 2 sockets of 56 cores",
      halves, [gpu(i, *H100, bus, i // 4) for i, bus in enumerate(buses)],
      links(8, lambda a, b: "NODE" if a // 4 == b // 4 else "SYS", True, True, True),
      **DRIVER, mps="stopped")

write("a100-pcie-4", "4 A100 on PCIe without bridges, 2 sockets of 32 cores, MPS running",
      [node(0, 0, 32, 64), node(1, 32, 32, 96)],
      [gpu(10 + i, "NVIDIA A100-PCIE-40GB", 40960, "8.0", bus, i // 2)
       for i, bus in enumerate(["01", "25", "81", "c1"])],
      links(4, lambda a, b: "NODE" if a // 2 == b // 2 else "SYS", False, True, False),
      **DRIVER, mps="running")

write("rtx4090-pcie-2", "2 cards of a desktop, which the driver gives no peer access",
      [node(0, 0, 16, 16)],
      [gpu(20 + i, "NVIDIA GeForce RTX 4090", 24564, "8.9", bus)
       for i, bus in enumerate(["01", "02"])],
      links(2, lambda a, b: "PHB", False, False, False), **DRIVER, mps="stopped")

split = gpu(30, *H100, "1b", 0)
split["mig_enabled"] = True
split["mig_instances"] = [{"uuid": uuid("MIG", 40 + i), "name": H100[0] + " MIG 1g.10gb",
                           "memory_bytes": 9984 * MIB} for i in range(7)]
write("h100-mig", "GPU 0 is split into seven 1g.10gb, GPU 1 is whole",
      halves, [split, gpu(31, *H100, "9d", 1)],
      links(2, lambda a, b: "SYS", False, False, False), **DRIVER, mps="stopped")

write("a100-vm-4", "a virtual machine that does not tell where its 4 GPUs are, a CPU quota",
      [node(0, 0, 24), node(1, 24, 24)],
      [gpu(50 + i, "NVIDIA A100-SXM4-40GB", 40960, "8.0", f"0{i + 4}") for i in range(4)],
      links(4, lambda a, b: "PHB", True, True, True),
      **DRIVER, mps="unknown", processor_quota=40)

# Cards side by side have a bridge; the others reach each other over PCIe.
bridged = links(4, lambda a, b: "NODE" if a // 2 == b // 2 else "SYS", False, True, False)
for link in bridged:
    if link["gpus"][0] // 2 == link["gpus"][1] // 2:
        link["nvlink"] = link["peer_atomics"] = True
write("a100-bridge-4", "4 A100 on PCIe with NVLink bridges between two each, one socket",
      [node(0, 0, 32, 32)],
      [gpu(60 + i, "NVIDIA A100-PCIE-40GB", 40960, "8.0", bus, 0)
       for i, bus in enumerate(["01", "25", "81", "c1"])],
      bridged, **DRIVER, mps="stopped")

write("no-gpu", "8 cores and no driver", [node(0, 0, 8, 8)], [], [],
      no_gpu_reason="no NVIDIA driver is installed, since libnvidia-ml.so.1 is not there")
