#!/usr/bin/env python3
"""Writes predict_golden.inc: what `passel eval` and `passel predict` must find, computed with NumPy
in double precision, and PNG files made byte by byte with zlib.

  python3 tests/e2e/predict_golden.py > tests/e2e/predict_golden.inc
"""
import struct
import zlib

import numpy as np

SIDE, HIDDEN, CLASSES, TRAIN, TEST = 4, 8, 4, 20, 60


class Numbers:
    """The same generator as Numbers in predict_test.cc: bytes."""

    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (1103515245 * self.x + 12345) % 2**31
        return self.x >> 16 & 0xFF

    def bytes(self, *shape):
        return np.array([self.next() for _ in range(int(np.prod(shape)))], np.uint8).reshape(shape)


def weights(numbers, *shape):
    # Exact in float32.
    return (numbers.bytes(*shape).astype(float) - 128) / 64


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def probabilities(model, images):
    w1, b1, w2, b2 = model
    # Pixels are scaled in float32.
    x = (images.reshape(len(images), -1).astype(np.float32) * np.float32(1 / 255)).astype(float)
    return softmax(np.maximum(x @ w1 + b1, 0) @ w2 + b2)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, colour, rows, extra=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = b"".join(b"\0" + row for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra +
            chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))


def grey_of(rgb):
    r, g, b = (rgb[..., i].astype(int) for i in range(3))
    return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16


def over(grey, alpha, background):
    return (grey * alpha.astype(int) + background * (255 - alpha.astype(int)) + 127) // 255


def averaged(picture, side):
    """Mean over areas, by repeating pixels until the areas are whole."""
    height, width = picture.shape
    big = np.repeat(np.repeat(picture.astype(np.int64), side, 0), side, 1)
    sums = big.reshape(side, height, side, width).sum(axis=(1, 3))
    return (2 * sums + height * width) // (2 * height * width)


def emit(name, kind, values):
    print(f"inline constexpr {kind} {name}[] = {{")
    for i in range(0, len(values), 12):
        print("    " + ", ".join(values[i:i + 12]) + ",")
    print("};")


def main():
    numbers = Numbers(1)
    model = (weights(numbers, SIDE * SIDE, HIDDEN), weights(numbers, HIDDEN),
             weights(numbers, HIDDEN, CLASSES), weights(numbers, CLASSES))
    numbers.bytes(TRAIN, SIDE, SIDE)
    numbers.bytes(TRAIN)
    images = numbers.bytes(TEST, SIDE, SIDE)
    labels = numbers.bytes(TEST) % CLASSES
    p = probabilities(model, images)
    top_two = np.sort(p, axis=1)[:, -2:]
    assert (top_two[:, 1] - top_two[:, 0]).min() > 1e-4, "too near a tie for float32"
    predicted = p.argmax(axis=1)
    confusion = np.zeros((CLASSES, CLASSES), int)
    for label, guess in zip(labels, predicted):
        confusion[label, guess] += 1
    loss = -np.log(np.clip(p[np.arange(TEST), labels], 1e-10, 1)).mean()

    print("// Written by predict_golden.py: do not edit.\n")
    print("#pragma once\n\n#include <cstdint>\n")
    print(f"inline constexpr double kLoss = {float(loss)!r};")
    print(f"inline constexpr double kAccuracy = {float(np.trace(confusion) / TEST)!r};")
    emit("kConfusion", "std::uint64_t", [str(c) for c in confusion.ravel()])
    emit("kProbabilities", "double", [repr(float(v)) for v in p.ravel()])

    # Pictures: name, PNG, and the probabilities without and with --invert.
    rgba = numbers.bytes(6, 6, 4)
    colour = numbers.bytes(8, 8, 3)
    grey = numbers.bytes(SIDE, SIDE)
    wide = numbers.bytes(3, 3)
    opaque = np.full((8, 8), 255)
    palette = numbers.bytes(4, 3)
    indices = numbers.bytes(SIDE, SIDE) % 4
    packed = [bytes([sum(int(v) << (6 - 2 * i) for i, v in enumerate(row))]) for row in indices]
    deep = numbers.bytes(SIDE, SIDE).astype(int)
    cases = {
        "Grey": (png(SIDE, SIDE, 8, 0, [r.tobytes() for r in grey]), grey, opaque[:4, :4]),
        "Colour": (png(8, 8, 8, 2, [r.tobytes() for r in colour]), grey_of(colour), opaque),
        "Rgba": (png(6, 6, 8, 6, [r.tobytes() for r in rgba]), grey_of(rgba), rgba[..., 3]),
        "Small": (png(3, 3, 8, 0, [r.tobytes() for r in wide]), wide, opaque[:3, :3]),
        "Palette": (png(SIDE, SIDE, 2, 3, packed, chunk(b"PLTE", palette.tobytes())),
                    grey_of(palette[indices]), opaque[:4, :4]),
        # 16 bits v * 257 are exactly 8 bits v.
        "Deep": (png(SIDE, SIDE, 16, 0, [b"".join(struct.pack(">H", v * 257) for v in r)
                                         for r in deep]), deep, opaque[:4, :4]),
    }
    emit("kOblongPng", "std::uint8_t", [str(b) for b in png(6, 4, 8, 0, [bytes(6)] * 4)])
    for name, (data, values, alpha) in cases.items():
        emit(f"k{name}Png", "std::uint8_t", [str(b) for b in data])
        plain = averaged(over(values, alpha, 0), SIDE)
        dark = 255 - averaged(over(values, alpha, 255), SIDE)
        emit(f"k{name}Pixels", "std::uint8_t", [str(v) for v in plain.ravel()])
        emit(f"k{name}Inverted", "std::uint8_t", [str(v) for v in dark.ravel()])
        both = probabilities(model, np.stack([plain, dark]))
        emit(f"k{name}Probabilities", "double", [repr(float(v)) for v in both.ravel()])


main()
