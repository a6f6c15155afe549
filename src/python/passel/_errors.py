"""The codes of passel.h as exceptions. str(error) is the library's sentence, with our names."""

import re


class Error(RuntimeError):
    """What passel refuses or what went wrong. `code` is that of passel.h."""

    code = 12


class InvalidArgument(Error, ValueError):
    """It can never work: a shape, a type, a setting."""

    code = 1


class NotFound(Error):
    code = 2


class AlreadyExists(Error):
    """This process has a job, or that worker is running."""

    code = 3


class PermissionDenied(Error):
    """Another user, or another job token."""

    code = 4


class FailedPrecondition(Error):
    """A call before the one that it needs, after leave(), or in a child of fork()."""

    code = 5


class ResourceExhausted(Error):
    """Memory or descriptors."""

    code = 6


class DataLoss(Error):
    code = 7


class Aborted(Error):
    """This worker was evicted: leave, and join again."""

    code = 8


class Cancelled(Error):
    """Somebody stopped the job. It ends a `with` block of that job quietly."""

    code = 9


class Unavailable(Error):
    """A ps is gone: leave, and join again."""

    code = 10


class DeadlineExceeded(Error, TimeoutError):
    """Not yet; the sentence names whom it waits for."""

    code = 11


class Internal(Error):
    code = 12


class Diverged(Error, ArithmeticError):
    """A gradient with NaN or infinity: it was not pushed."""

    code = 13


_BY_CODE = {kind.code: kind for kind in
            (InvalidArgument, NotFound, AlreadyExists, PermissionDenied, FailedPrecondition,
             ResourceExhausted, DataLoss, Aborted, Cancelled, Unavailable, DeadlineExceeded, Internal,
             Diverged)}

for _kind in (Error, *_BY_CODE.values()):
    _kind.__module__ = "passel"


def _in_words_of_python(sentence: str) -> str:
    """What the library says of its functions, said of ours."""
    sentence = sentence.replace("call passel_gradient() and fill it", "ask for job.gradients and fill them")
    sentence = sentence.replace("the array that passel_open() takes", "what join() takes")
    sentence = sentence.replace("passel_open()", "join()").replace("passel_gradient()", "gradients")
    sentence = sentence.replace("passel_read_optimizer_state()", "optimizer_state()")
    sentence = sentence.replace("give all workers the same flags", "give all workers the same variables and settings")
    return re.sub(r"passel_(\w+)\(\)", r"\1()", sentence)


def of(code: int, sentence: str) -> Error:
    """The exception for a code, also of one that this version does not know."""
    error = _BY_CODE.get(code, Error)(_in_words_of_python(sentence))
    error.code = code
    return error
