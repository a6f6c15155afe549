#!/usr/bin/env python3
"""The other side of the cross-check with the reference implementation of safetensors.

    safetensors_reference.py check            exit 0 if the modules are there, 77 if not
    safetensors_reference.py golden           print safetensors_golden.inc
    safetensors_reference.py write FILE       write the example with the reference
    safetensors_reference.py verify FILE      load FILE, compare it with the example bit by bit
    safetensors_reference.py dump FILE        print the metadata and each tensor: name, dtype, shape,
                                              its bytes in hexadecimal
    safetensors_reference.py accepts FILE     FILE holds many files, each after its length (u64 LE):
                                              exit 0 if the reference accepts every one
"""
import struct
import sys

try:
    import numpy as np
    import safetensors
    import safetensors.numpy
except ImportError as error:
    print(error)
    sys.exit(77)


def example():
    """Every dtype that passel reads; element i is 3 * i - 5, wrapped for the unsigned one."""
    tensors = {}
    for name in ("float64", "float32", "int64", "uint8"):
        values = 3 * np.arange(6, dtype=np.int64) - 5
        tensors["t/" + name] = values.astype(name).reshape(2, 3)
    tensors["scalar"] = np.array(-0.1, dtype=np.float32)
    tensors["empty"] = np.zeros((0, 7), dtype=np.float32)
    tensors["quote\" back\\ tab-free \u00e9\u4e2d\U0001f417"] = np.array([1.5], dtype=np.float32)
    return tensors


METADATA = {"step": "17", "text": "line\nbreak \"quoted\" \\ \u00e9"}


def golden():
    blob = safetensors.numpy.save(
        {"hid_w": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
         "hid_b": np.array([-1.0, 2.0], dtype=np.float32),
         "global_step": np.array(123456789012, dtype=np.int64)},
        {"format": "np"})
    print(f"// Written by safetensors {safetensors.__version__}: see safetensors_reference.py.")
    for i in range(0, len(blob), 16):
        print(" ".join(f"0x{b:02x}," for b in blob[i:i + 16]))


def verify(path):
    wanted = example()
    with safetensors.safe_open(path, "np") as f:
        assert f.metadata() == METADATA, f.metadata()
        assert set(f.keys()) == set(wanted), f.keys()
        for name, value in wanted.items():
            got = f.get_tensor(name)
            assert got.dtype == value.dtype and got.shape == value.shape, name
            assert got.tobytes() == value.tobytes(), name


def dump(path):
    with safetensors.safe_open(path, "np") as f:
        for key, value in sorted(f.metadata().items()):
            print(f"{key}={value}")
        for name in sorted(f.keys()):
            tensor = f.get_tensor(name)
            shape = ",".join(map(str, tensor.shape))
            print(f"{name} {tensor.dtype} [{shape}] {tensor.tobytes().hex()}")


def accepts(path):
    blob = open(path, "rb").read()
    at = count = 0
    while at < len(blob):
        (size,) = struct.unpack_from("<Q", blob, at)
        at += 8
        safetensors.deserialize(blob[at:at + size])
        at += size
        count += 1
    print(count)


def main():
    command = sys.argv[1]
    if command == "golden":
        golden()
    elif command == "write":
        safetensors.numpy.save_file(example(), sys.argv[2], METADATA)
    elif command == "verify":
        verify(sys.argv[2])
    elif command == "dump":
        dump(sys.argv[2])
    elif command == "accepts":
        accepts(sys.argv[2])
    elif command != "check":
        sys.exit("unknown command " + command)


main()
