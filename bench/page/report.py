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

import figures
import lessons
import peer_figures
import plots
import results as files
import tables
import training_figures
from figures import Section

NAME = "bench/page/report.py"
NO_PEERS = ("the other systems were not measured (tools/bench --peers; bench/peers/setup installs "
            "them)")
DIGITS = 5  # of what --shrink keeps

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


# --- The page -------------------------------------------------------------------------------------


def drawn_sections(results, peers, why_no_peers):
    """All with pictures, in their order."""
    return [*figures.sections(results), *training_figures.sections(results),
            peer_figures.section(peers, why_no_peers)]


def sections(results, peers, why_no_peers):
    """All of the page but its head, in their order."""
    drawn = drawn_sections(results, peers, why_no_peers)
    by_anchor = {section.anchor: section for section in drawn}
    by_anchor["scaling"].tables = [("The figures", tables.sharing_table(results))]
    by_anchor["peers"].tables = [
        ("Comparisons", tables.verdicts_table(peers.verdicts if peers else []))]
    for section in drawn:
        if section.pictures and not plots.AVAILABLE:
            section.pictures = []
            section.missing = "drawings need Python's matplotlib (tools/setup --with bench)"
    notes = (results.notes or []) + [f"{one.what or one.name}: {one.note}"
                                     for one in results.rows + results.cells if one.note]
    return [
        Section("targets", "Targets",
                "Each figure beside what the same run measured in turn with it: a limit, which the "
                "same work cannot beat, or a reference, which it may. The ratio is the one over "
                "the other. A spread above 20 %, marked !, means: measure again on a quieter "
                "machine.",
                tables=[("", tables.rows_table([row for row in results.rows if row.target])),
                        ("Rows without a target",
                         tables.rows_table([row for row in results.rows if not row.target]))],
                missing="" if results.rows else "no row of the table was measured"),
        *drawn,
        Section("limits", "What this machine can do",
                "Memory, copies and hand-overs without anything of passel, in the same run.",
                tables=[("", tables.limits_table(results))],
                missing="" if results.limits else "no limit was measured (--filter BM_Limit)"),
        Section("cells", "All cells",
                "One row for each kind of update that was measured. The ratio says how many times "
                "its reference, the bare loop, an update takes, within pairs of runs; the share is "
                "that of the reference's updates a second. Lost are updates of elements, counted "
                "with numbers whose sum is known exactly; busy blocks were claimed by another "
                "writer at the first try, overlapped ones were entered all the same.",
                tables=[("Cells", tables.cells_table(results.measured)),
                        ("Cells without a figure", tables.Table(
                            ["cell|", "why|"],
                            [[c.name, c.why_not] for c in results.cells if c.why_not]))],
                missing="" if results.cells else "no cell of the update matrix was measured"),
        Section("machine", "The machine", tables=[
            ("", tables.Table(["what|", "value|"], tables.machine_facts(results, peers))),
            ("Notes of the run", tables.Table(["note|"], [[note] for note in notes]))])]


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
    said = [f"{tables.targets(results)}."] * bool(tables.targets(results))
    said += [results.advice] * bool(results.advice) + lessons.sentences(results)
    said += [tables.verdicts(peers)] if peers is not None and peers.verdicts else []
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
    parts += [f"<details><summary>{name} ({len(table.rows)})</summary>{table.html()}</details>"
              if name else table.html() for name, table in section.tables if table.rows]
    parts.append(f'<p class="note">{html.escape(section.note)}</p>' if section.note else "")
    return "\n".join([*parts, "</section>"])


# --- The documents --------------------------------------------------------------------------------


class BadPage(Exception):
    """One sentence: which mark of a document is wrong, and where."""


def blocks_of(results, peers):
    """{name: (Markdown, picture or None)} that docs/performance.md can have of one run."""
    def of(table, before=""):
        return before + table.markdown() if table.rows else before

    said = tables.verdicts(peers) + "\n\n" if peers and peers.verdicts else ""
    not_ahead = [v for v in peers.verdicts if v.verdict != "ahead"] if peers else []
    machine = [f"- {name}: {value}" for name, value in tables.machine_facts(results, None)]
    machine += [f"- **warning**: {text}" for text in results.warnings or []]
    usual = [c for c in results.measured
             if c.elements == figures.USUAL_SIZE and c.loop == "closed"]
    found = {
        "machine": "\n".join(machine),
        "targets": of(tables.rows_table([row for row in results.rows if row.target]),
                      tables.targets(results) and tables.targets(results) + ".\n\n"),
        "advice": "\n".join(f"- {text}" for text in lessons.sentences(results)),
        "limits": of(tables.limits_table(results)),
        "sharing": of(tables.sharing_table(results)),
        "cells": of(tables.cells_table(usual)),
        "verdicts": of(tables.verdicts_table(not_ahead), said),
    }
    blocks = {name: (text.rstrip() or "Not here: that was not measured in this run.", None)
              for name, text in found.items()}
    for section in drawn_sections(results, peers, "they were not measured"):
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
