#!/usr/bin/env python3
"""Prints png_kinds.inc, for png_test.cc: a PNG file of every kind, made byte by byte with zlib, and
the RGBA pixels (8 bits each) that whoever reads it must get, computed here from the samples.

Kinds: 5 colour types, all bit depths that each may have, plain and interlaced, without and with
transparency (tRNS), and one with gamma. No library for pictures is used.
"""
import struct
import zlib

WIDTH, HEIGHT = 9, 6  # every pass of Adam7 has pixels, and no row of few bits fills its last byte
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16),
          RGBA: (8, 16)}
NAMES = {GREY: "grey", RGB: "rgb", PALETTE: "palette", GREY_ALPHA: "grey+alpha", RGBA: "rgba"}
# First column, first row, step right, step down.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))


class Numbers:
    def __init__(self):
        self.x = 1

    def below(self, limit):
        self.x = (1103515245 * self.x + 12345) % 2**31
        return (self.x >> 8) % limit


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(pixels, depth):
    """Samples of one row of pixels as bytes, the first in the highest bits."""
    bits = "".join(format(sample, f"0{depth}b") for pixel in pixels for sample in pixel)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def filtered(rows, bytes_per_pixel):
    """Every row with another filter (PNG specification, section 9), so that all five occur."""
    out, above = b"", bytes(len(rows[0]))
    for y, row in enumerate(rows):
        kind = y % 5
        line = bytearray()
        for i, value in enumerate(row):
            a = row[i - bytes_per_pixel] if i >= bytes_per_pixel else 0
            b = above[i]
            c = above[i - bytes_per_pixel] if i >= bytes_per_pixel else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line.append((value - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
        out += bytes([kind]) + line
        above = row
    return out


def png(colour, depth, interlaced, image, extra):
    step = max(1, CHANNELS[colour] * depth // 8)
    data = b""
    for x0, y0, dx, dy in ADAM7 if interlaced else ((0, 0, 1, 1),):
        rows = [packed(image[y][x0::dx], depth) for y in range(y0, HEIGHT, dy)]
        data += filtered(rows, step)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def to_8_bits(sample, depth):
    return round(sample * 255 / (2**depth - 1))


def rgba(colour, depth, pixel, palette, alphas, transparent):
    if colour == PALETTE:
        return (*palette[pixel[0]], alphas[pixel[0]] if pixel[0] < len(alphas) else 255)
    values = [to_8_bits(sample, depth) for sample in pixel]
    if colour in (GREY, GREY_ALPHA):
        values = [values[0]] * 3 + values[1:]
    if len(values) == 3:
        values.append(0 if pixel == transparent else 255)
    return tuple(values)


def main():
    numbers = Numbers()
    print("// Written by png_kinds.py.")

    def emit(name, file, pixels):
        flat = bytes(value for row in pixels for pixel in row for value in pixel)
        print(f'{{"{name}",')
        for text, end in ((file.hex(), ","), (flat.hex(), "},")):
            lines = [text[i:i + 96] for i in range(0, len(text), 96)]
            print("\n".join(f' "{line}"' for line in lines) + end)

    for colour, depths in DEPTHS.items():
        for depth in depths:
            for see_through in (False, True):
                if see_through and colour in (GREY_ALPHA, RGBA):
                    continue
                image = [[tuple(numbers.below(2**depth) for _ in range(CHANNELS[colour]))
                          for _ in range(WIDTH)] for _ in range(HEIGHT)]
                palette, alphas, transparent, extra = [], [], None, b""
                if colour == PALETTE:
                    palette = [tuple(numbers.below(256) for _ in range(3))
                               for _ in range(2**min(depth, 4))]
                    image = [[(index % len(palette),) for (index,) in row] for row in image]
                    extra = chunk(b"PLTE", bytes(v for entry in palette for v in entry))
                if see_through and colour == PALETTE:
                    alphas = [numbers.below(256) for _ in range(len(palette) - 1)]
                    extra += chunk(b"tRNS", bytes(alphas))
                elif see_through:
                    # The same in the high byte alone is another colour.
                    transparent = image[3][4]
                    image[5][7] = transparent
                    if depth == 16:
                        image[0][1] = tuple(sample ^ 1 for sample in transparent)
                    extra = chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent))
                pixels = [[rgba(colour, depth, pixel, palette, alphas, transparent)
                           for pixel in row] for row in image]
                for interlaced in (False, True):
                    name = f"{NAMES[colour]} {depth}{', interlaced' * interlaced}"
                    emit(name + ", tRNS" * see_through,
                         png(colour, depth, interlaced, image, extra), pixels)
    # Light itself (gamma 1), which a screen shows with 1/2.2.
    image = [[(numbers.below(256),) for _ in range(WIDTH)] for _ in range(HEIGHT)]
    shown = [[(*[round(255 * (v / 255)**(1 / 2.2))] * 3, 255) for (v,) in row] for row in image]
    emit("grey 8, gamma 1", png(GREY, 8, False, image, chunk(b"gAMA", struct.pack(">I", 100000))),
         shown)


if __name__ == "__main__":
    main()
