"""interrupts - imported first: Ctrl-C while a script still reads its modules ends it without a traceback."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
