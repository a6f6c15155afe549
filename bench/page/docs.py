"""docs - fills the tables and drawings of one run into docs/performance.md.

The page has marks; what stands between two of them is replaced, and nothing else is touched:

    <!-- begin NAME -->
    ...
    <!-- end NAME -->

Drawings that the page shows go into docs/plots; others are removed from there.
"""

import os
import re

import advice
import figures
import lessons
import page
import style
import words
from svg import escape

MARGIN = 14  # pixels around a drawing that is a file of its own


class BadPage(Exception):
    """One sentence: which mark is wrong, and where."""


def fill(folder, results, peers, write):
    """Rewrites `folder`/performance.md and `folder`/plots. `write(path, text)` replaces a file."""
    path = os.path.join(folder, "performance.md")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise BadPage(f"{path} cannot be read ({error.strerror})") from error
    blocks, drawings = blocks_of(results, peers)
    text = replace(path, text, blocks)
    drawings = {name: drawing for name, drawing in drawings.items() if f"plots/{name}" in text}
    plots = os.path.join(folder, "plots")
    os.makedirs(plots, exist_ok=True)
    for name, drawing in drawings.items():
        write(os.path.join(plots, name), drawing)
    for name in sorted(os.listdir(plots)):
        if name.endswith(".svg") and name not in drawings:
            os.remove(os.path.join(plots, name))
    write(path, text)


def replace(path, text, blocks):
    """`text` with every block in place. Errors: BadPage for a mark that is missing or unknown."""
    marks = re.findall(r"<!-- begin ([a-z-]+) -->", text)
    for name in marks:
        if name not in blocks:
            raise BadPage(f"{path} has a mark for '{name}', but there are only "
                          f"{', '.join(sorted(blocks))}")
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise BadPage(f"{path} needs one '{begin.strip()}' and after it one '{end}'")
        head, rest = text.split(begin)
        text = head + begin + blocks[name].rstrip("\n") + "\n" + end + rest.split(end)[1]
    if not marks:
        raise BadPage(f"{path} has no mark '<!-- begin NAME -->' to fill")
    return text


def blocks_of(results, peers):
    """({name: Markdown}, {file name: SVG}) of one run."""
    blocks = {"machine": machine_block(results), "targets": targets_block(results),
              "advice": advice_block(results), "limits": limits_block(results),
              "sharing": sharing_block(results), "cells": cells_block(results),
              "verdicts": verdicts_block(peers)}
    drawings = {}
    for section in page.sections(results, peers, "they were not measured in this run"):
        lines = []
        for figure in section.figures:
            drawing = figure.draw(figure.wide)
            drawings[f"{figure.name}.svg"] = drawing.render(
                style=style.VARIABLES + style.DRAWING, margin=MARGIN)
            share = "100%" if figure.wide == figures.WIDE else "49%"
            lines.append(f'<img src="plots/{figure.name}.svg" width="{share}" '
                         f'alt="{escape(drawing.title)}">')
        if section.missing:
            lines = [f"Not here: {section.missing.rstrip('.')}."]
        if section.note:
            lines += ["", section.note]
        blocks[section.anchor] = "\n".join(lines)
    return blocks, drawings


def cells_of(text):
    return str(text).replace("|", "\\|")


def table(heads, rows, left=(0,)):
    """Markdown; columns in `left` begin at the left, the others end at the right."""
    lines = ["| " + " | ".join(heads) + " |",
             "|" + "|".join("---" if i in left else "---:" for i in range(len(heads))) + "|"]
    lines += ["| " + " | ".join(cells_of(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def machine_block(results):
    facts = [f"- {name}: {value}" for name, value in results.machine]
    if results.other_cores is not None:
        facts.append(f"- load: {results.other_cores:.1f} cores busy with other programs, "
                     f"{100 * (results.steal or 0):.1f} % steal")
    if results.seconds:
        facts.append(f"- length of the run: {results.seconds:.0f} s")
    facts += [f"- **warning**: {text}" for text in results.warnings]
    return "\n".join(facts)


def known(value, write=words.table_number):
    return "" if value is None else write(value)


def targets_block(results):
    rows = [[row.what, known(row.measured), known(row.limit), known(row.reference), row.unit,
             known(row.ratio),
             row.target, ("" if row.spread is None else words.percent(row.spread))
             + (" !" if (row.spread or 0) > 0.20 else ""), row.verdict]
            for row in results.rows if row.target]
    if not rows:
        return "Not here: no row with a target was measured."
    return advice.targets(results) + ".\n\n" + table(
        ["what", "measured", "limit", "reference", "unit", "ratio", "target", "spread", "verdict"],
        rows, left=(0, 4, 8))


def advice_block(results):
    said = advice.sentences(results) + lessons.sentences(results)
    return "\n".join(f"- {text}" for text in said) or "Not here: no training was measured."


def limits_block(results):
    if not results.limits:
        return "Not here: no limit was measured."
    return table(["what", "size", "cores", "value", "unit"], [
        [what, known(size, page.byte_count), known(cores, lambda n: f"{n:.0f}"),
         words.significant(value, 4), unit] for what, size, cores, value, unit in results.limits],
        left=(0, 4))


def sharing_block(results):
    if not results.scaling:
        return "Not here: no training was measured."
    rows = sorted(results.scaling, key=lambda s: (s.workers, style.order_of(s.sharing)))
    return table(["workers", "sharing", "steps/s", "private steps/s", "ratio", "spread"], [
        [s.workers, f"`{s.sharing}`", words.grouped(s.steps), known(s.private, words.grouped),
         known(s.ratio), known(s.spread, words.percent)] for s in rows], left=(1,))


def cells_block(results):
    """The cells at the usual size in a closed loop: what most people ask first."""
    rows = [cell for cell in results.measured() if cell.elements == figures.USUAL_SIZE
            and cell.loop == "closed"]
    if not rows:
        return f"Not here: no cell of {words.grouped(figures.USUAL_SIZE)} parameters was measured."
    rows.sort(key=lambda c: (c.op, c.optimizer, c.writers, c.placement, c.pages,
                             style.order_of(c.mode)))
    return table(["update", "writers", "p50", "p99", "p99.9", "reference", "ratio", "lost", "busy"], [
        [f"{page.op_and_mode(c)}{', ' + figures.where(c) if figures.where(c) else ''}", c.writers,
         words.duration(c.p50), known(c.p99, words.duration), known(c.p999, words.duration),
         known(c.limit, words.duration), known(c.ratio), figures.lost(c),
         known(c.busy, words.grouped)] for c in rows])


def verdicts_block(peers):
    if peers is None or not peers.verdicts:
        return "Not here: no other system was measured."
    kinds = [kind for _, _, _, kind in peers.verdicts]
    lines = [f"passel is ahead in {kinds.count('ahead')} of {len(kinds)} comparisons, within 5 % "
             f"in {kinds.count('tie')}, behind in {kinds.count('behind')}."]
    others = [v for v in peers.verdicts if v[3] != "ahead"]
    if others:
        lines += ["", table(["what", "passel", "the other", "passel is"], [
            [what, words.significant(ours), words.significant(other), kind]
            for what, ours, other, kind in others], left=(0, 3))]
    lines += [""] * bool(peers.missing) + [f"- missing: {name}: {reason}"
                                           for name, reason in sorted(peers.missing.items())]
    return "\n".join(lines)
