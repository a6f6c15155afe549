#!/usr/bin/env python3
"""Prints event_golden.inc, for event_test.cc: records of an event file, made byte by byte from the
descriptions of the wire format of protocol buffers, of CRC32C and of histograms, without a library
for any of them.
"""
import bisect
import struct

DBL_MAX = float.fromhex("0x1.fffffffffffffp+1023")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value):
    value %= 2**64  # negative numbers have ten bytes
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def number(field, value):
    return varint(field * 8) + varint(value)


def double(field, value):
    return varint(field * 8 + 1) + struct.pack("<d", value)


def single(field, value):
    return varint(field * 8 + 5) + struct.pack("<f", value)


def text(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field * 8 + 2) + varint(len(data)) + data


def doubles(field, values):
    return text(field, b"".join(struct.pack("<d", value) for value in values))


def limits():
    positive, v = [], 1e-12
    while v < 1e20:
        positive.append(v)
        v *= 1.1
    positive.append(DBL_MAX)
    return [-v for v in reversed(positive)] + [0.0] + positive


def histogram(values):
    edges = limits()
    counts = [0] * len(edges)
    for value in values:
        counts[bisect.bisect_right(edges, value)] += 1
    kept = []
    for edge, count in zip(edges, counts):
        if kept and count == 0 and kept[-1][1] == 0:
            kept[-1] = (edge, 0)
        else:
            kept.append((edge, count))
    fields = [(1, min(values)), (2, max(values)), (3, len(values)), (4, sum(values)),
              (5, sum(v * v for v in values))]
    return (b"".join(double(field, value) for field, value in fields if value != 0) +
            doubles(6, [edge for edge, _ in kept]) + doubles(7, [count for _, count in kept]))


def value(tag, what):
    return text(1, text(1, tag) + what)


def emit(name, data):
    print(f'{{"{name}",')
    lines = [data.hex()[i:i + 96] for i in range(0, len(data.hex()), 96)]
    print("\n".join(f' "{line}"' for line in lines) + "},")


def main():
    assert crc32c(b"123456789") == 0xE3069283 and len(limits()) == 1551
    print("// Written by event_golden.py.")
    emit("version", record(double(1, 1700000000.0) + text(3, "brain.Event:2")))
    emit("start", record(double(1, 1700000000.25) + number(2, 7) + text(7, number(1, 1))))
    emit("stop", record(double(1, 1700000001.5) + text(7, number(1, 2))))
    emit("checkpoint", record(double(1, 1700000001.5) + number(2, 2**40) +
                              text(7, number(1, 3) + text(2, "d/model.ckpt-7"))))
    scalars = (value("loss", single(2, 0.75)) + value("none", single(2, 0.0)) +
               value("inf", single(2, float("-inf"))))
    emit("scalars", record(double(1, 1700000002.0) + number(2, 100) + text(5, scalars)))
    values = [0.0, -0.0, 1.0, 1.0, -1.0, 0.5, 2.0**-41, -2.0**-41, 2.0**70, -2.0**70, 2.0**-149,
              3.0, -1024.0]
    emit("histogram", record(double(1, 1700000002.0) + number(2, 100) +
                             text(5, value("hid_w", text(5, histogram(values))))))
    shape_of_text = text(2, b"")
    emit("text", record(double(1, 1700000002.0) +
                        text(5, value("model", text(8, number(1, 7) + shape_of_text +
                                                    text(8, "| a | \u00e9 |")) +
                                      text(9, text(1, text(1, "text")))))))
    node = text(1, "x") + text(2, "Placeholder")
    other = text(1, "y") + text(2, "MatMul") + text(3, "x") + text(3, "w") + text(4, "/job:worker")
    emit("graph", record(double(1, 1700000002.0) + number(2, 7) +
                         text(4, text(1, node) + text(1, other))))


if __name__ == "__main__":
    main()
