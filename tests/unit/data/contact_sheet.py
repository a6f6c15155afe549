"""Writes a PNG with the first images of an IDX directory, sorted by label, to look at.

  python3 contact_sheet.py <dir> <out.png> [columns] [zoom]
"""

import gzip
import os
import struct
import sys
import zlib

import numpy as np


def read_idx(directory, name):
    """The array of one IDX file, plain or gzip."""
    path = os.path.join(directory, name)
    opener = open if os.path.exists(path) else gzip.open
    with opener(path if opener is open else path + ".gz", "rb") as file:
        data = file.read()
    dims = struct.unpack(">%dI" % data[3], data[4:4 + 4 * data[3]])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(dims)


def write_png(path, image):
    """Writes a (rows, cols) uint8 array as a grey PNG."""
    def chunk(kind, body):
        return (struct.pack(">I", len(body)) + kind + body +
                struct.pack(">I", zlib.crc32(kind + body)))
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def main():
    directory, out = sys.argv[1:3]
    columns = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    zoom = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    images = read_idx(directory, "train-images-idx3-ubyte")
    labels = read_idx(directory, "train-labels-idx1-ubyte")
    sheet = [np.hstack(images[np.flatnonzero(labels == digit)[:columns]]) for digit in range(10)]
    write_png(out, np.kron(np.vstack(sheet), np.ones((zoom, zoom), np.uint8)))


if __name__ == "__main__":
    main()
