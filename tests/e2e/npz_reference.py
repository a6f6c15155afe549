#!/usr/bin/env python3
"""npz_reference.py check | show FILE.npz: the arrays of a file as numpy.load() has them, as JSON.

Exit codes: 0; 77 numpy is not there."""
import json
import sys

try:
    import numpy
except ImportError as error:
    print(error)
    sys.exit(77)

if sys.argv[1] == "show":
    arrays = numpy.load(sys.argv[2], allow_pickle=False)
    print(json.dumps({name: {"shape": list(arrays[name].shape),
                             "least": float(arrays[name].min()),
                             "most": float(arrays[name].max()),
                             "norm": float(numpy.linalg.norm(arrays[name].astype("f8")))}
                      for name in arrays.files}))
