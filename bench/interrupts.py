"""interrupts - imported first: Ctrl-C while a script still reads its modules ends it without a traceback.

A script that has something to show then calls raised(), or installs a handler of its own.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def raised():
    """From now on Ctrl-C is a KeyboardInterrupt; what is ignored (nohup, say) stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
