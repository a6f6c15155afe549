"""Loads the module over libpassel.so."""

import os

import numpy as np  # noqa: F401, with an OpenBLAS of its own

# libpassel.so brings an OpenBLAS, which would start a thread for each core.
_threads = os.environ.get("OPENBLAS_NUM_THREADS")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
try:
    from . import _core as _core
finally:
    if _threads is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = _threads
