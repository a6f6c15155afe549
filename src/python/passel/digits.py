"""Pictures of digits for the examples: MNIST where it is, else digits that passel draws."""

import gzip
import pathlib
import subprocess

import numpy as np

from ._program import program


def load(part: str = "train", folder: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [N, 784] of float32 from 0 to 1 and labels [N]. part: "train" or "t10k".

    folder: of four IDX files, plain or .gz. None: that of `passel data locate`.
    """
    path = pathlib.Path(folder or _found())
    pictures = _read(path, f"{part}-images-idx3-ubyte", 16)
    labels = _read(path, f"{part}-labels-idx1-ubyte", 8)
    return pictures.reshape(len(labels), -1).astype(np.float32) / 255, labels


def _read(folder: pathlib.Path, name: str, header: int) -> np.ndarray:
    plain = folder / name
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return np.frombuffer(data, np.uint8, offset=header)


def _found() -> str:
    done = subprocess.run([program(), "data", "locate"], check=True, text=True, capture_output=True)
    return done.stdout.strip()
