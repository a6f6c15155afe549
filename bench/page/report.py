#!/usr/bin/python3
"""report - makes a page of what tools/bench and bench/peers/run have measured: one HTML file with
its drawings in it, which needs nothing else. The same files give the same page, byte for byte.
"""
# The first line names the system's Python, which has Debian's matplotlib.

import argparse
import html
import json
import os
import re
import sys
from dataclasses import dataclass

import figures
import lessons
import plots
import results as files
import words
from figures import Section
from words import known

NAME = "bench/page/report.py"
NO_PEERS = ("the other systems were not measured (tools/bench --peers; bench/peers/setup installs "
            "them)")
DIGITS = 5  # of what --shrink keeps
MUCH_SPREAD = 0.20

CSS = """
body{margin:0 auto;max-width:1120px;padding:16px;background:#fff;color:#1b1c1e;line-height:1.5;
font:15px/1.5 system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
section{border-top:1px solid #d9dadc;margin-top:24px}
p,ul{max-width:90ch}nav a{margin-right:14px;white-space:nowrap}
.note,.missing{color:#5c6066;font-size:13px;overflow-wrap:anywhere}
.warning{background:#fff4dc;padding:8px 12px}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr))}
figure{margin:0}figure.wide{grid-column:1/-1}svg{max-width:100%;height:auto}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid #d9dadc;vertical-align:top}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
"""


@dataclass
class Table:
    """`heads` that end in "|" are of columns of words, the others of numbers."""
    heads: list
    rows: list

    def columns(self):
        return [(head.rstrip("|"), head.endswith("|")) for head in self.heads]

    def html(self):
        head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in self.columns())
        body = "".join("<tr>" + "".join(
            ("<td>" if is_words else '<td class="number">') + html.escape(str(cell)) + "</td>"
            for cell, (_, is_words) in zip(row, self.columns())) + "</tr>\n" for row in self.rows)
        return (f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}'
                "</tbody></table></div>")

    def markdown(self):
        lines = [[name for name, _ in self.columns()],
                 ["---" if is_words else "---:" for _, is_words in self.columns()],
                 *[[str(cell).replace("|", "\\|") for cell in row] for row in self.rows]]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# --- Tables ---------------------------------------------------------------------------------------


def percent_marked(spread):
    return known(spread, words.percent) + (" !" if (spread or 0) > MUCH_SPREAD else "")


def rows_table(rows):
    return Table(["what|", "measured", "limit", "reference", "unit|", "ratio", "target", "spread",
                  "verdict|"],
                 [[row.what, known(row.measured), known(row.limit), known(row.reference),
                   row.unit or "", known(row.ratio), row.target, percent_marked(row.spread),
                   " ".join(filter(None, (row.verdict, row.reason or row.error)))]
                  for row in rows])


def targets(results):
    """"27 targets: 24 met, 2 missed, 1 not applicable", or "" without any."""
    verdicts = [row.verdict for row in results.rows if row.target]
    counts = [f"{verdicts.count(verdict)} {verdict}"
              for verdict in ("met", "missed", "not applicable", "WRONG") if verdict in verdicts]
    return f"{words.plural(len(verdicts), 'target')}: {', '.join(counts)}" if verdicts else ""


def cells_table(cells):
    cells = sorted(cells, key=lambda c: (c.op, c.optimizer, words.order_of(c.mode), c.elements,
                                         c.writers, c.placement != "own", str(c.placement),
                                         str(c.pages), c.rate))
    return Table(
        ["update|", "parameters", "writers", "p50", "p99", "p99.9", "max", "reference", "ratio",
         "spread", "updates/s", "share", "lost", "busy", "overlapped"],
        [[", ".join(filter(None, (
            figures.op_name(c.op), c.mode, c.optimizer, figures.where(c),
            f"open loop at {words.count(c.rate)}/s" if c.loop == "open" else ""))),
          words.grouped(c.elements), c.writers,
          *[known(us, words.duration) for us in (c.p50, c.p99, c.p999, c.max, c.reference)],
          known(c.ratio), percent_marked(c.spread), known(c.updates_per_second, words.grouped),
          known(c.share), lessons.lost(c), known(c.busy_blocks, words.grouped),
          known(c.overlapped_blocks, words.grouped)] for c in cells])


def limits_table(results):
    return Table(["what|", "size", "cores", "value", "unit|"],
                 [[limit.what, known(limit.bytes, byte_count), known(limit.cores, words.grouped),
                   words.significant(limit.value, 4), limit.unit] for limit in results.limits])


def byte_count(size):
    for limit, unit in ((2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB")):
        if size >= limit:
            return f"{words.short(size / limit)} {unit}"
    return f"{size:.0f} B"


def sharing_table(results):
    return Table(["workers", "sharing|", "steps/s", "private steps/s", "ratio", "spread"],
                 [[s.workers, s.sharing, words.grouped(s.steps_per_second),
                   known(s.private_steps_per_second, words.grouped), known(s.ratio),
                   percent_marked(s.spread)]
                  for s in sorted(results.scaling,
                                  key=lambda s: (s.workers, words.order_of(s.sharing)))])


def verdicts(peers):
    kinds = [v.verdict for v in peers.verdicts]
    return (f"Beside other systems passel is ahead in {kinds.count('ahead')} of {len(kinds)} "
            f"comparisons, within 5 % in {kinds.count('tie')}, behind in {kinds.count('behind')}.")


def verdicts_table(found):
    return Table(["what|", "passel", "the other", "passel is|"],
                 [[v.what, words.significant(v.passel), words.significant(v.other), v.verdict]
                  for v in found])


def machine_facts(results, peers):
    facts = list((results.machine or {}).items())
    if results.load and results.load.other_cores is not None:
        facts.append(("load", f"{results.load.other_cores:.1f} cores busy with other programs, "
                              f"{100 * (results.load.steal or 0):.1f} % steal"))
    if results.seconds:
        facts.append(("length of the run", f"{results.seconds:.0f} s"))
    if peers is not None:
        facts += [(f"peers: {name}", value) for part in (peers.machine, peers.versions)
                  for name, value in (part or {}).items()]
    return facts


# --- The page -------------------------------------------------------------------------------------


def sections(results, peers, why_no_peers):
    """All of the page but its head, in their order."""
    with_target = [row for row in results.rows if row.target]
    others = [row for row in results.rows if not row.target]
    usual = [("", rows_table(with_target))] * bool(with_target)
    usual += [(f"{words.plural(len(others), 'row')} without a target", rows_table(others))
              ] * bool(others)
    drawn = figures.sections(results, peers, why_no_peers)
    by_anchor = {section.anchor: section for section in drawn}
    if results.scaling:
        by_anchor["scaling"].tables = [("The figures", sharing_table(results))]
    if peers is not None and peers.verdicts:
        by_anchor["peers"].tables = [(words.plural(len(peers.verdicts), "comparison"),
                                      verdicts_table(peers.verdicts))]
    for section in drawn:
        if section.pictures and not plots.AVAILABLE:
            section.pictures = []
            section.missing = "drawings need Python's matplotlib (tools/setup --with bench)"
    refused = [[c.name, c.why_not] for c in results.cells if c.why_not]
    notes = results.notes or []
    notes = notes + [f"{one.what or one.name}: {one.note}"
                     for one in results.rows + results.cells if one.note]
    return [
        Section("targets", "Targets",
                "Each figure beside what the same run measured in turn with it: a limit, which the "
                "same work cannot beat, or a reference, which it may. The ratio is the one over "
                "the other. A spread above 20 %, marked !, means: measure again on a quieter "
                "machine.", tables=usual,
                missing="" if usual else "no row of the table was measured"),
        *drawn,
        Section("limits", "What this machine can do",
                "Memory, copies and hand-overs without anything of passel, in the same run.",
                tables=[("", limits_table(results))] * bool(results.limits),
                missing="" if results.limits else "no limit was measured (--filter BM_Limit)"),
        Section("cells", "All cells",
                "One row for each kind of update that was measured. The ratio says how many times "
                "its reference, the bare loop, an update takes, within pairs of runs; the share is "
                "that of the reference's updates a second. Lost are updates of elements, counted "
                "with numbers whose sum is known exactly; busy blocks were claimed by another "
                "writer at the first try, overlapped ones were entered all the same.",
                tables=[(words.plural(len(results.measured), "cell"),
                         cells_table(results.measured))] * bool(results.measured)
                + [(f"{words.plural(len(refused), 'cell')} without a figure",
                    Table(["cell|", "why|"], refused))] * bool(refused),
                missing="" if results.cells else "no cell of the update matrix was measured"),
        Section("machine", "The machine",
                tables=[("", Table(["what|", "value|"], machine_facts(results, peers)))]
                + [(f"{words.plural(len(notes), 'note')} of the run",
                    Table(["note|"], [[note] for note in notes]))] * bool(notes))]


def emphasized(text):
    """Escaped, with `code` and *emphasis*."""
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))
    return re.sub(r"\*([^*]*)\*", r"<em>\1</em>", text)


def render(results, peers, why_no_peers):
    """The whole page. `peers` may be None, with the reason."""
    facts = results.machine or {}
    machine = ", ".join(facts[name] for name in ("processor", "cores", "host") if name in facts)
    warnings = ["The run was interrupted: what is here is complete, the rest was not measured"
                ] * bool(results.interrupted) + (results.warnings or [])
    said = [f"{targets(results)}."] * bool(targets(results))
    said += [results.advice] * bool(results.advice) + lessons.sentences(results)
    said += [verdicts(peers)] if peers is not None and peers.verdicts else []
    said += [f"`{mode}` {text}." for mode, text in (results.guarantees or {}).items()]
    parts = sections(results, peers, why_no_peers)
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>What an update costs here: passel</title>\n<style>{CSS}</style>\n</head>\n<body>",
        "<h1>What an update costs here</h1>",
        f"<p>{html.escape(machine or 'an unknown machine')}</p>",
        *[f'<p class="warning">{html.escape(text)}.</p>' for text in warnings],
        "<ul>", *[f"<li>{emphasized(figures.capital(text))}</li>" for text in said], "</ul>",
        "<nav>" + " ".join(f'<a href="#{s.anchor}">{html.escape(s.title)}</a>' for s in parts)
        + "</nav>",
        *[section_html(section) for section in parts],
        "<p class=\"note\">Made by tools/bench; every figure on this page was measured in one run. "
        "docs/benchmarks.md says how.</p>\n</body>\n</html>"]) + "\n"


def section_html(section):
    parts = [f'<section id="{section.anchor}">\n<h2>{html.escape(section.title)}</h2>']
    if section.missing:
        why = html.escape(section.missing.rstrip("."))
        parts.append(f'<p class="missing">Not here: {why}.</p>')
    else:
        parts.append(f"<p>{emphasized(section.text)}</p>")
    parts.append('<div class="pictures">')
    parts += [f'<figure id="figure-{html.escape(one.name)}"'
              + (' class="wide"' if one.name == "time-split" else "") + f">\n{one.draw()}</figure>"
              for one in section.pictures]
    parts.append("</div>")
    parts += [f"<details><summary>{html.escape(summary)}</summary>{table.html()}</details>"
              if summary else table.html() for summary, table in section.tables]
    parts.append(f'<p class="note">{html.escape(section.note)}</p>' if section.note else "")
    return "\n".join([*parts, "</section>"])


# --- The documents --------------------------------------------------------------------------------


class BadPage(Exception):
    """One sentence: which mark of a document is wrong, and where."""


def blocks_of(results, peers):
    """{name: (Markdown, picture or None)} that docs/performance.md can have of one run."""
    usual = [c for c in results.measured
             if c.elements == figures.USUAL_SIZE and c.loop == "closed"]
    not_ahead = [v for v in (peers.verdicts if peers else []) if v.verdict != "ahead"]
    found = {
        "machine": "\n".join([f"- {name}: {value}" for name, value in machine_facts(results, None)]
                             + [f"- **warning**: {text}" for text in results.warnings or []]),
        "targets": targets(results) and targets(results) + ".\n\n" + rows_table(
            [row for row in results.rows if row.target]).markdown(),
        "advice": "\n".join(f"- {text}" for text in lessons.sentences(results)),
        "limits": results.limits and limits_table(results).markdown(),
        "sharing": results.scaling and sharing_table(results).markdown(),
        "cells": usual and cells_table(usual).markdown(),
        "verdicts": peers and peers.verdicts and verdicts(peers) + (
            "\n\n" + verdicts_table(not_ahead).markdown() if not_ahead else ""),
    }
    blocks = {name: (text or "Not here: that was not measured in this run.", None)
              for name, text in found.items()}
    for section in figures.sections(results, peers, "they were not measured"):
        for one in section.pictures:
            blocks[one.name] = (f'<img src="plots/{one.name}.svg" width="70%" '
                                f'alt="{html.escape(one.title)}">', one)
    return blocks


def fill_documents(folder, results, peers):
    """Rewrites what stands between marks of `folder`/performance.md, as in <!-- begin NAME --> and
    <!-- end NAME -->, and keeps in `folder`/plots the pictures that it shows."""
    path = os.path.join(folder, "performance.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    blocks, shown = blocks_of(results, peers), {}
    marks = re.findall(r"<!-- begin (\S+) -->", text)
    if not marks:
        raise BadPage(f"{path} has no mark '<!-- begin NAME -->' to fill")
    for name in marks:
        if name not in blocks:
            raise BadPage(f"{path} has a mark for '{name}', but there are only "
                          f"{', '.join(sorted(blocks))}")
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise BadPage(f"{path} needs one '{begin.strip()}' and after it one '{end}'")
        block, one = blocks[name]
        if one and not plots.AVAILABLE:
            raise BadPage(f"the picture '{name}' of {path} needs Python's matplotlib (tools/setup "
                          "--with bench)")
        if one:
            shown[f"{name}.svg"] = one
        text = text[:text.index(begin)] + begin + block + "\n" + text[text.index(end):]
    folder = os.path.join(folder, "plots")
    os.makedirs(folder, exist_ok=True)
    for name in set(os.listdir(folder)) - set(shown):
        os.remove(os.path.join(folder, name))
    for name, one in shown.items():
        write(os.path.join(folder, name), one.draw())
    write(path, text)


# --- The command ----------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog=NAME, allow_abbrev=False, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: 0 done; 1 a file could not be written; 2 wrong usage, or a file that "
               "is no such\nresult or one of another version.")
    parser.add_argument("--results", required=True, metavar="FILE",
                        help="JSON of tools/bench --json")
    parser.add_argument("--peers", metavar="FILE", help="JSON of bench/peers/run --json")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--out", metavar="FILE",
                        help="the page; default report.html beside --results")
    chosen.add_argument("--docs", action="store_true",
                        help="instead: fill tables and pictures into docs/performance.md and "
                             "docs/plots")
    chosen.add_argument("--shrink", metavar="FILE",
                        help="instead: write --results to FILE with five digits a number and a "
                             "cell a line, to be kept in bench/results; with --peers those beside "
                             "it, as FILE without .json plus .peers.json")
    parser.add_argument("--docs-dir", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.out:
        options.out = os.path.join(os.path.dirname(options.results) or ".", "report.html")
    if not options.docs and os.path.isdir(options.out):
        parser.error(f"--out {options.out} is a folder: name a file")
    return options


def shrunk(path):
    """The JSON of the file `path` with fewer digits: a line for each entry of a list."""
    def digits(text):
        value = float(text)
        # Of a percentile only the distance from 1 matters.
        rounded = float(f"{value:.12g}" if 0 <= value <= 1 else f"{value:.{DIGITS}g}")
        return int(rounded) if rounded.is_integer() else rounded

    def line(value):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    with open(path, encoding="utf-8") as file:
        found = json.load(file, parse_float=digits)
    parts = []
    for name, value in found.items():
        entries = isinstance(value, list) and value and isinstance(value[0], dict)
        parts.append(f"{json.dumps(name)}: " + (
            "[\n" + ",\n".join(map(line, value)) + "\n]" if entries else line(value)))
    return "{" + ",\n".join(parts) + "}\n"


def write(path, text):
    """Renamed into place: a reader never sees half of it."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def main(arguments):
    options = parse(arguments)
    results = files.read_results(options.results)
    peers = files.read_peers(options.peers) if options.peers else None
    if options.shrink:
        write(options.shrink, shrunk(options.results))
        if peers:
            write(options.shrink.removesuffix(".json") + ".peers.json", shrunk(options.peers))
    elif options.docs:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
        fill_documents(options.docs_dir or os.path.join(root, "docs"), results, peers)
    else:
        write(options.out, render(results, peers, NO_PEERS))
    return 0


def run(arguments):
    try:
        return main(arguments)
    except (files.BadFile, BadPage) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{NAME}: {error.filename} cannot be written: {error.strerror}; "
              "make room or name another place with --out or --shrink", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
