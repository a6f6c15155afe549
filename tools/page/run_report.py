"""run_report - reads what `passel train --report` has written, and refuses anything else.

An object of the file is an Entry; a field that is not there is None.
"""

import math

import document
from document import BadFile

FORMAT = 1  # of --report (kReportFormat of src/job/report.h)
COMMAND = "passel train --report"
PARTS = ("pull", "compute", "push", "wait")  # of a worker's time
# What must be numbers where it is there: of the report, and of the objects of its lists, with those
# that must be there.
NUMBERS = ("exit_code global_step local_steps seconds startup_seconds training_seconds "
           "steps_per_second updates_per_second test_accuracy test_loss ps ps_restarts")
CHECKPOINT_NUMBERS = "saved failed writing_seconds held_seconds resumed_step"
LISTS = {
    "curve": ("seconds global_step loss accuracy steps_per_second staleness_mean staleness_p99 "
              "dropped workers", "seconds global_step"),
    "workers": ("index local_steps dropped", "index"),
    "modes": ("since", ""),
    "starts": ("life at_s", "at_s"),  # of lives of tasks
    "deaths": ("life at_s", "at_s"),
}


def read_report(path):
    """The report in a file, with all that the page needs. A field that is not there is None."""
    found = document.load(path, "curve", FORMAT, COMMAND)

    def refuse(where, value, what):
        raise BadFile(f"{path}: {where} is {value!r}, not {what}: write the file again with {COMMAND}")

    def check(where, value, kind, what):
        if not isinstance(value, kind):
            refuse(where, value, what)

    def check_numbers(where, entry, fields, needed=""):
        for field in fields.split():
            value = entry.get(field)
            if value is None and field not in needed.split():
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or (
                    not math.isfinite(value)):
                refuse(f"{where}{field}", value, "a number")

    check("run", found.setdefault("run", document.Entry()), dict, "an object")
    check("run.changed", found.run.setdefault("changed", document.Entry()), dict, "an object")
    check("run.command", found.run.setdefault("command", []), list, "a list")
    check_numbers("", found, NUMBERS)
    if found.get("checkpoints") is None:
        found["checkpoints"] = document.Entry()
    check("checkpoints", found.checkpoints, dict, "an object")
    check_numbers("checkpoints.", found.checkpoints, CHECKPOINT_NUMBERS)
    for name, (fields, needed) in LISTS.items():
        check(name, found.setdefault(name, []), list, "a list")
        for i, entry in enumerate(found[name]):
            check(f"{name}[{i}]", entry, dict, "an object")
            check_numbers(f"{name}[{i}].", entry, fields, needed)
    for i, worker in enumerate(found.workers):
        check(f"workers[{i}].seconds", worker.get("seconds"), dict, "an object")
        check_numbers(f"workers[{i}].seconds.", worker.seconds, " ".join(PARTS), " ".join(PARTS))
    for i, death in enumerate(found.deaths):
        check(f"deaths[{i}].last_lines", death.setdefault("last_lines", []), list, "a list")
    for entry in found.starts + found.deaths:
        entry.task = document.clean(entry.task)  # it comes into a drawing
    for name in ("starts", "deaths"):
        found[name].sort(key=lambda entry: entry.at_s)
    check("notes", found.setdefault("notes", []), list, "a list")
    return found
