"""Training with a parameter server: your model and loop, passel's parameters.

    with passel.join({"w": (784, 10)}, optimizer="sgd", learning_rate=0.5) as job:
        for _ in job.steps(1000):
            w = job.pull()["w"]
            job.gradients["w"][...] = gradient_of(w)
            job.step()

Alone, or, started by `passel run --workers 4 -- python train.py`, one worker of four.
"""

from ._errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, Diverged, Error,
                      FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied,
                      ResourceExhausted, Unavailable)
from ._job import Job, OptimizerState, Outcome, join, joined
from ._program import program
from ._reader import Reader, Reading, attach
from ._sampler import Sampler

__version__ = "0.1.0"
__all__ = [
    "Aborted", "AlreadyExists", "Cancelled", "DataLoss", "DeadlineExceeded", "Diverged", "Error",
    "FailedPrecondition", "Internal", "InvalidArgument", "Job", "NotFound",
    "OptimizerState", "Outcome", "PermissionDenied", "Reader", "Reading", "ResourceExhausted", "Sampler", "Unavailable", "attach",
    "join", "joined", "program",
]
