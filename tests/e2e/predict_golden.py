#!/usr/bin/env python3
"""Prints predict_golden.inc, for predict_test.cc: what `passel eval` and `passel predict` must find,
computed here in double precision, and PNG files made byte by byte with zlib.
"""
import math
import struct
import zlib

SIDE, HIDDEN, CLASSES, TRAIN, TEST = 4, 8, 4, 20, 60


class Numbers:
    """The same generator as Numbers in predict_test.cc: bytes."""

    def __init__(self, seed):
        self.x = seed

    def bytes(self, count):
        found = []
        for _ in range(count):
            self.x = (1103515245 * self.x + 12345) % 2**31
            found.append(self.x >> 16 & 0xFF)
        return found

    def weights(self, count):
        return [(b - 128) / 64 for b in self.bytes(count)]  # exact in float32


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def layer(x, weights, bias):
    return [b + sum(v * weights[i * len(bias) + j] for i, v in enumerate(x))
            for j, b in enumerate(bias)]


def probabilities(model, pixels):
    w1, b1, w2, b2 = model
    # Pixels are scaled in float32.
    x = [float32(p * float32(1 / 255)) for p in pixels]
    z = layer([max(v, 0) for v in layer(x, w1, b1)], w2, b2)
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side, depth, colour, data, extra=b""):
    """`data`: the bytes of all rows."""
    header = struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0)
    row = len(data) // side
    body = b"".join(b"\0" + data[y * row:(y + 1) * row] for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra +
            chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))


def grey_of(pixels):
    return [(19595 * r + 38470 * g + 7471 * b + 32768) >> 16 for r, g, b in pixels]


def over(grey, alpha, background):
    return [(g * a + background * (255 - a) + 127) // 255 for g, a in zip(grey, alpha)]


def averaged(picture):
    """Mean over areas, by repeating pixels until the areas are whole."""
    side = math.isqrt(len(picture))
    sums = [0] * SIDE**2
    for y in range(side * SIDE):
        for x in range(side * SIDE):
            sums[y // side * SIDE + x // side] += picture[y // SIDE * side + x // SIDE]
    return [(2 * total + side**2) // (2 * side**2) for total in sums]


def grouped(values, size):
    return [tuple(values[i:i + size]) for i in range(0, len(values), size)]


def emit(name, kind, values):
    print(f"inline constexpr {kind} {name}[] = {{{', '.join(map(repr, values))}}};")


def main():
    numbers = Numbers(1)
    model = [numbers.weights(count)
             for count in (SIDE * SIDE * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES)]
    numbers.bytes(TRAIN * SIDE * SIDE)
    numbers.bytes(TRAIN)
    images = grouped(numbers.bytes(TEST * SIDE * SIDE), SIDE * SIDE)
    labels = [label % CLASSES for label in numbers.bytes(TEST)]
    p = [probabilities(model, image) for image in images]
    assert min(sorted(row)[-1] - sorted(row)[-2] for row in p) > 1e-4, "too near a tie for float32"
    confusion = [0] * CLASSES**2
    for label, row in zip(labels, p):
        confusion[label * CLASSES + row.index(max(row))] += 1
    loss = -sum(math.log(max(row[label], 1e-10)) for label, row in zip(labels, p)) / TEST

    print("#pragma once\n\n#include <cstdint>\n")
    print(f"inline constexpr double kLoss = {loss!r};")
    print(f"inline constexpr double kAccuracy = {sum(confusion[::CLASSES + 1]) / TEST!r};")
    emit("kConfusion", "std::uint64_t", confusion)
    emit("kProbabilities", "double", [v for row in p for v in row])

    # Pictures: name, PNG, and the probabilities without and with --invert.
    rgba = grouped(numbers.bytes(6 * 6 * 4), 4)
    colour = grouped(numbers.bytes(8 * 8 * 3), 3)
    grey = numbers.bytes(SIDE * SIDE)
    small = numbers.bytes(3 * 3)
    palette = grouped(numbers.bytes(4 * 3), 3)
    indices = [index % 4 for index in numbers.bytes(SIDE * SIDE)]
    packed = bytes(a << 6 | b << 4 | c << 2 | d for a, b, c, d in grouped(indices, 4))
    deep = numbers.bytes(SIDE * SIDE)

    def flat(pixels):
        return bytes(value for pixel in pixels for value in pixel)

    cases = {
        "Grey": (png(SIDE, 8, 0, bytes(grey)), grey),
        "Colour": (png(8, 8, 2, flat(colour)), grey_of(colour)),
        "Rgba": (png(6, 8, 6, flat(rgba)), grey_of(pixel[:3] for pixel in rgba)),
        "Small": (png(3, 8, 0, bytes(small)), small),
        "Palette": (png(SIDE, 2, 3, packed, chunk(b"PLTE", flat(palette))),
                    grey_of(palette[index] for index in indices)),
        # 16 bits v * 257 are exactly 8 bits v.
        "Deep": (png(SIDE, 16, 0, b"".join(struct.pack(">H", v * 257) for v in deep)), deep),
    }
    for name, (data, values) in cases.items():
        alpha = [pixel[3] for pixel in rgba] if name == "Rgba" else [255] * len(values)
        plain = averaged(over(values, alpha, 0))
        dark = [255 - value for value in averaged(over(values, alpha, 255))]
        emit(f"k{name}Png", "std::uint8_t", data)
        emit(f"k{name}Probabilities", "double",
             probabilities(model, plain) + probabilities(model, dark))


main()
