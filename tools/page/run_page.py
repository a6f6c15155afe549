#!/usr/bin/python3
"""run_page - makes a page of what `passel train --report` has written: one HTML file with its
drawings in it, which needs nothing else. `passel train --report_html` runs it. The same report gives
the same page, byte for byte.
"""
# The first line names the system's Python, which has Debian's matplotlib.

import argparse
import shlex
import sys
from bisect import bisect_left
from collections import Counter

import document
import plots
from document import text
from plots import Line, count, grouped, number, short
from run_report import COMMAND, PARTS, read_report

NAME = "run_page"
NO_MATPLOTLIB = 3  # exit code
BLUE, ORANGE, GREEN, GREY = "#0b67a8", "#cf5200", "#00835f", "#9a9da2"
COLOURS = {"pull": BLUE, "compute": GREEN, "push": ORANGE, "wait": GREY}
MOST_ROWS = 12    # of the table of the course
MOST_LIVES = plots.MOST_NAMES  # tasks in the picture of deaths
WIDE_LOSS = 100   # times its least value: then its axis is logarithmic
STYLE = """
h1{margin-bottom:0}section{display:grid;gap:8px 32px;align-items:start;margin-bottom:24px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
section>h2{grid-column:1/-1;margin-bottom:0}figcaption{font-weight:bold}
pre{background:var(--soft);padding:8px 12px;white-space:pre-wrap}
.table{max-height:480px;overflow-y:auto}
"""


# --- Numbers --------------------------------------------------------------------------------------


def elapsed(seconds):
    """"0.27 s", "2 min 05 s", "3 h 07 min"."""
    if seconds < 120:
        return f"{short(seconds)} s"
    whole = int(seconds + 0.5)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole // 60 % 60:02} min"


def general(value, digits=4):
    """At most four significant digits; with an exponent if it is very large or small."""
    return "" if value is None else f"{value:.{digits}g}"


def unit_of(seconds):
    """(seconds, name) of the unit in which a time axis of that length is read best."""
    return (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")


class TimeAxis:
    """Time since the start of the program, in the unit that suits the run."""

    def __init__(self, report):
        last = [report.seconds or 0, *[self.since_start(report, p) for p in report.curve[-1:]],
                *[death.at_s for death in report.deaths]]
        self.end = max(last)
        self.unit, name = unit_of(self.end)
        self.title = f"time since the start of the program, {name}"

    @staticmethod
    def since_start(report, point):
        return (report.startup_seconds or 0) + point.seconds

    def at(self, seconds):
        return seconds / self.unit


def between(known, wanted, at):
    """What lies at `at` among `wanted` values that belong to ascending `known` ones: on the line
    between two of them, the first or the last one outside."""
    after = bisect_left(known, at)
    if after in (0, len(known)):
        return wanted[min(after, len(known) - 1)]
    width = known[after] - known[after - 1]
    share = (at - known[after - 1]) / width if width > 0 else 1  # steps may have gone back
    return wanted[after - 1] + share * (wanted[after] - wanted[after - 1])


def events_of(report):
    """(time since the start of the program, global step, what happened) of deaths and changes of the
    mode. REQUIRES: the report has a curve."""
    times = [TimeAxis.since_start(report, point) for point in report.curve]
    steps = [point.global_step for point in report.curve]
    deaths = [(death.at_s, between(times, steps, death.at_s), "death") for death in report.deaths]
    modes = [(between(steps, times, mode.since), mode.since, "mode") for mode in report.modes[1:]
             if mode.since is not None]
    return deaths + modes


# --- Pictures -------------------------------------------------------------------------------------


def figure(title, drawn):
    return f"<figure>\n<figcaption>{title}</figcaption>\n{drawn}\n</figure>"


def range_in_words(name, points, write, x_name, x_write):
    """For who cannot see the curve of `points`, (x, y): where it begins and ends, and its extremes."""
    there = [(x, y) for x, y in points if y is not None]
    low, high = min(there, key=lambda p: p[1]), max(there, key=lambda p: p[1])
    (first, begin), (last, end) = there[0], there[-1]
    return (f"{name}: {write(begin)} at {x_name} {x_write(first)}, {write(end)} at {x_name} "
            f"{x_write(last)}; least {write(low[1])} at {x_write(low[0])}, most {write(high[1])} at "
            f"{x_write(high[0])}")


def learning_picture(report, title, field, write, top=None):
    points = [(point.global_step, point.get(field)) for point in report.curve]
    values = [y for _, y in points if y is not None]
    if not values:
        return figure(title, f"<p>The {field} was never a finite number.</p>")
    log = top is None and min(values) > 0 and max(values) > WIDE_LOSS * min(values)
    events = [(step, what) for _, step, what in events_of(report)]
    words = range_in_words(title, points, write, "global step", grouped)
    if None in (y for _, y in points):
        title += "; gaps: not a finite number"
    return figure(title, plots.course(words, "global steps", field, [Line(field, points, BLUE)],
                                      y_write=write, events=events, log=log, top=top))


def time_picture(report, axis, title, y_title, lines, none):
    """`lines` are (label, field, colour)."""
    drawn, words = [], []
    for label, field, colour in lines:
        points = [(axis.at(axis.since_start(report, p)), p.get(field)) for p in report.curve]
        if any(y is not None for _, y in points):
            drawn.append(Line(label, points, colour))
            words.append(range_in_words(f"{title}, {label}", points, count, axis.title.split(",")[0],
                                        short))
    if not drawn:
        return figure(title, f"<p>{none}</p>")
    events = [(axis.at(time), what) for time, _, what in events_of(report)]
    return figure(title, plots.course(". ".join(words), axis.title, y_title, drawn, x_write=short,
                                      events=events))


def course_pictures(report, axis):
    pictures = [
        learning_picture(report, "Loss of the latest batches", "loss", general),
        learning_picture(report, "Accuracy of the latest batches", "accuracy", general, top=1.02),
        time_picture(report, axis, "Speed", "local steps a second",
                     [("steps/s of all workers", "steps_per_second", GREEN)],
                     "The run was too short to have a speed."),
        time_picture(report, axis, "Staleness of the gradients", "updates",
                     [("99 % are not above", "staleness_p99", ORANGE),
                      ("mean", "staleness_mean", BLUE)], "No gradient was applied.")]
    if any(point.dropped for point in report.curve):
        pictures.append(time_picture(report, axis, "Gradients dropped so far", "gradients",
                                     [("dropped", "dropped", ORANGE)], ""))
    if len({point.workers for point in report.curve}) > 1:
        pictures.append(time_picture(report, axis, "Workers that had not died", "workers",
                                     [("workers", "workers", GREEN)], ""))
    return pictures


def share_picture(report):
    workers = report.workers
    totals = {part: sum(worker.seconds[part] for worker in workers) for part in PARTS}
    whole = sum(totals.values())
    if whole <= 0:
        return "<p>No worker has computed anything.</p>"
    unit, name = unit_of(max(sum(worker.seconds[part] for part in PARTS) for worker in workers))
    words = "Of the time of all workers: " + ", ".join(
        f"{part} {100 * seconds / whole:.0f} %" for part, seconds in totals.items())
    return figure(words, plots.stacks(
        words + ". A bar for each worker", f"time, {name}",
        [f"worker/{worker.index}" for worker in workers],
        [(part, COLOURS[part], [worker.seconds[part] / unit for worker in workers])
         for part in PARTS], short))


def lives_of(report, tasks, end):
    """(row, from, to) of each life of `tasks`, in seconds; who did not die lived until `end`."""
    # A report that does not say when they began: with the program, and where the one before ended.
    starts = [(start.task, start.at_s) for start in report.starts] or [
        *[(task, 0) for task in tasks],
        *[(death.task, death.at_s) for death in report.deaths if death.restarted]]
    spans = []
    for task, start in starts:
        if task in tasks:
            ends = [death.at_s for death in report.deaths
                    if death.task == task and death.at_s > start]
            spans.append((tasks.index(task), start, min(ends, default=end)))
    return spans


def lives_picture(report, axis):
    deaths = report.deaths
    tasks = [f"ps/{i}" for i in range(int(report.ps or 0))]
    tasks += [f"worker/{int(worker.index)}" for worker in report.workers]
    tasks = list(dict.fromkeys(tasks + [entry.task for entry in report.starts + deaths]))
    title = "Lives of the tasks"
    if len(tasks) > MOST_LIVES:
        often = Counter(death.task for death in deaths)
        worst = [task for task, _ in often.most_common(MOST_LIVES)]
        title = f"Lives of {len(worst)} of the {len(tasks)} tasks: those that died most often"
        tasks = [task for task in tasks if task in worst]
    trained = (report.startup_seconds or 0) + (report.training_seconds or 0)
    spans = [(row, axis.at(start), axis.at(end))
             for row, start, end in lives_of(report, tasks, max(trained, deaths[-1].at_s))]
    marks = [(tasks.index(death.task), axis.at(death.at_s)) for death in deaths
             if death.task in tasks]
    words = (f"{title}: {counted(len(deaths), 'death')}, "
             f"{counted(sum(bool(death.restarted) for death in deaths), 'restart')}")
    return figure(words, plots.lives(words, axis.title, tasks, spans, marks, short))


# --- Tables ---------------------------------------------------------------------------------------


def result(report):
    """Sentences."""
    said = []
    if report.test_accuracy is not None:
        loss = "" if report.test_loss is None else f", test loss {report.test_loss:.4f}"
        said.append(f"Test accuracy {report.test_accuracy:.4f}{loss}.")
    else:
        said.append("Not evaluated.")
    if report.local_steps:
        said.append(f"{grouped(report.global_step)} global steps in "
                    f"{elapsed(report.training_seconds or 0)}: "
                    f"{grouped(report.steps_per_second)} steps/s, "
                    f"{grouped(report.updates_per_second)} updates/s.")
    else:
        said.append("No step was made.")
    return " ".join(said)


def counted(number_of, what):
    return f"{count(number_of)} {what}{'' if number_of == 1 or what == 'ps' else 's'}"


def facts(report):
    run = report.run
    modes = [mode.mode if i == 0 else f"from global step {grouped(mode.since or 0)} on {mode.mode}"
             for i, mode in enumerate(report.modes)]
    tasks = [counted(report.ps, "ps") if report.ps else "no ps",
             counted(len(report.workers), "worker")]
    if report.ps_restarts:
        tasks.append(f"{counted(report.ps_restarts, 'restart')} of a ps")
    times = [f"{elapsed(seconds)} {what}" for seconds, what in (
        (report.seconds, "in all"), (report.startup_seconds, "until the first step"),
        (report.training_seconds, "of training")) if seconds]
    return [(what, value) for what, value in (
        ("job", report.job), ("started", run.started),
        ("time", ", ".join(times)), ("mode", ", ".join(map(str, modes)) or report.mode),
        ("tasks", ", ".join(tasks)), ("device", report.device), ("model", report.model),
        ("optimizer", report.optimizer), ("data", report.data),
        ("goes on from", report.checkpoints.resumed_from),
        ("checkpoints", checkpoints_in_words(report.checkpoints)), ("host", run.host),
        ("processor", run.processor), ("cores that could be used", run.cores),
        ("passel", run.version)) if value not in (None, "")]


def checkpoints_in_words(said):
    """Of the object `checkpoints` of a report; "" where none were made."""
    if said.folder in (None, ""):
        return ""
    words = [f"{count(said.saved or 0)} saved in {said.folder}"]
    if said.failed:
        words.append(f"{count(said.failed)} failed")
    if said.newest:
        words.append(f"the newest {said.newest}")
    if said.best:
        words.append(f"the best {said.best}")
    if said.held_seconds:
        words.append(f"workers waited {elapsed(said.held_seconds)} for them")
    return ", ".join(words)


def course_table(report, axis):
    last = len(report.curve) - 1
    chosen = sorted({round(i * last / (MOST_ROWS - 1)) for i in range(MOST_ROWS)}) if last > 0 else [0]
    return document.table(
        ["time", "global step", "loss", "accuracy", "steps/s", "staleness, mean", "p99", "dropped",
         "workers"],
        [[elapsed(axis.since_start(report, p)), grouped(p.global_step), general(p.loss),
          general(p.accuracy), grouped(p.steps_per_second), general(p.staleness_mean, 3),
          grouped(p.staleness_p99), grouped(p.dropped), grouped(p.workers)]
         for p in (report.curve[i] for i in chosen)])


def workers_table(report):
    # A column says something where they differ.
    more = [field for field in ("dropped", "device")
            if len({worker.get(field) for worker in report.workers}) > 1]
    return document.table(
        ["worker", "steps", *[f"{part}, s" for part in PARTS], *more, "end|"],
        [[grouped(w.index), grouped(w.local_steps), *[number(w.seconds[part]) for part in PARTS],
          *[w.get(field) for field in more], w.exit or ""] for w in report.workers])


def deaths_table(report):
    return document.table(
        ["time", "task|", "life", "cause|", "then|"],
        [[elapsed(death.at_s), death.task, grouped(death.life), death.cause or "",
          "started again" if death.restarted else "not started again"] for death in report.deaths])


def last_lines(report):
    """What the tasks that died had printed last; the first one's is open."""
    said = [death for death in report.deaths if death.last_lines]
    parts = []
    for death in said:
        opened = ' open="open"' if death is said[0] else ""
        lines = "\n".join(map(str, death.last_lines))
        parts.append(f"<details{opened}><summary>last lines of {text(death.task)}, which died at "
                     f"{elapsed(death.at_s)}</summary>\n<pre>{text(lines)}</pre></details>")
    return "\n".join(parts)


# --- The page -------------------------------------------------------------------------------------


def section(title, *parts):
    return "\n".join([f"<section>\n<h2>{title}</h2>", *parts, "</section>"])


def render(report):
    axis = TimeAxis(report)
    command = shlex.join(map(str, report.run.command))
    ended = "was interrupted" if report.interrupted else "failed"
    warnings = [f"This run {ended}: exit code {report.exit_code}."] * bool(report.exit_code)
    changed = list(report.run.changed.items())
    parts = [section("What ran", document.table(["what|", "value|"], facts(report)),
                     document.table(["setting that is not the default|", "value|"], changed)
                     if changed else "<p>Every setting is the default.</p>")]
    if command:
        parts.append(f"<pre>{text(command)}</pre>")
    if report.curve:
        parts += [section("Course", *course_pictures(report, axis)), course_table(report, axis)]
    else:
        parts.append("<p>There is no course to draw: no worker has made a step.</p>")
    if report.workers:
        parts.append(section("Where the time of the workers went", share_picture(report),
                             workers_table(report)))
    if report.deaths:
        parts.append(section("Deaths and restarts", lives_picture(report, axis),
                             deaths_table(report)))
        parts.append(last_lines(report))
    return document.page(f"Run of {report.job}", result(report), warnings + report.notes, parts, STYLE)


# --- The command ----------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog=NAME, allow_abbrev=False, description=__doc__,
        epilog="Exit codes: 0 done; 1 the page could not be written; 2 wrong usage, or a file that is "
               "no such report or one of another version; 3 this Python has no matplotlib (Debian: "
               "python3-matplotlib).")
    parser.add_argument("report", nargs="?", metavar="REPORT.json", help=f"a file of {COMMAND}")
    parser.add_argument("page", nargs="?", metavar="FILE", help="the page, which is replaced")
    parser.add_argument("--check", action="store_true",
                        help="instead: only say whether a page could be made here")
    options = parser.parse_args(arguments)
    if options.check == bool(options.page) or options.check and options.report:
        parser.error("takes REPORT.json and FILE, or --check alone")
    return options


def run(arguments):
    options = parse(arguments)
    if not plots.AVAILABLE:
        fix = "" if options.check else ": install the Debian package python3-matplotlib"
        print(f"{NAME}: {sys.executable} has no matplotlib that can draw ({plots.WHY_NOT}){fix}",
              file=sys.stderr)
        return NO_MATPLOTLIB
    if options.check:
        return 0
    return document.run(
        NAME, lambda: document.write(options.page, render(read_report(options.report))),
        "make room or name another file")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
