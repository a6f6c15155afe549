"""tables - the figures of a run as tables, for the page in HTML and for documents in Markdown."""

import html
from dataclasses import dataclass

import figures
import lessons
import words
from words import known

MUCH_SPREAD = 0.20


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
