"""page - the report as one HTML file: no script, nothing from the network, light and dark."""

import advice
import cell_figures
import figures
import lessons
import peer_figures
import style
import training_figures
import words
from svg import escape

CSS = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);line-height:1.5;
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:19px;margin:0 0 6px}
p{margin:0 0 10px;max-width:76ch}
section,header{background:var(--surface);border:1px solid var(--rule);border-radius:8px;
padding:20px 24px;margin:0 0 16px}
.sub,figcaption,.note{color:var(--muted)}
.note{font-size:13px;max-width:none;overflow-wrap:anywhere}
nav{margin:12px 0 0;line-height:2}
nav a{margin-right:14px;white-space:nowrap}
a{color:var(--accent)}
.missing{border-left:4px solid var(--rule);padding:4px 12px;color:var(--muted)}
.warning{background:var(--warn-page);border-radius:6px;padding:8px 12px;
margin:0 0 8px;max-width:none}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));
gap:24px 20px;margin:14px 0 10px;align-items:start}
figure{margin:0;min-width:0}
figure.wide{grid-column:1/-1}
svg{display:block;max-width:100%;height:auto}
svg.phone{display:none}
.scroll{overflow-x:auto;margin:8px 0}
table{border-collapse:collapse;font-size:13px;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 8px;white-space:nowrap;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--muted);font-weight:600;border-bottom-width:2px}
th:first-child,td:first-child,td.words,th.words{text-align:left;padding-left:0}
td:first-child,td.words{white-space:normal}
td.words,th.words{padding-left:10px}
td.verdict,th.verdict{text-align:left;white-space:nowrap}
.met{color:var(--good)}.missed,.wrong{color:var(--bad);font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0 0 10px}
dt{color:var(--muted)}dd{margin:0;min-width:0;overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--accent);margin:8px 0}
ul{margin:0 0 10px;padding-left:20px}
code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:.92em}
footer{color:var(--muted);font-size:13px}
@media (max-width:700px){
main{padding:8px 8px 40px}section,header{padding:14px 12px}
svg.wide{display:none}svg.phone{display:block;margin:0 auto}
dl{grid-template-columns:1fr}dd{margin-bottom:6px}
table,tbody{display:block}thead{display:none}
tr{display:flex;flex-wrap:wrap;gap:0 14px;padding:6px 0;border-bottom:1px solid var(--rule)}
td,td.words{border:0;padding:0;text-align:left;white-space:normal}
td:first-child{flex-basis:100%}
td.words:last-child{flex-basis:100%}
td[data-head]:not(:first-child)::before{content:attr(data-head) " ";color:var(--muted)}
td:empty,td.verdict::before{display:none}}
@media print{body{background:#fff}section{break-inside:avoid}}
"""


def sections(results, peers, why_no_peers):
    """All sections with figures, in their order."""
    return [cell_figures.latency_section(results), cell_figures.writers_section(results),
            cell_figures.percentile_section(results), cell_figures.loop_section(results),
            training_figures.scaling_section(results), training_figures.split_section(results),
            training_figures.lines_section(results),
            peer_figures.peers_section(peers, why_no_peers)]


def render(results, peers, why_no_peers):
    """The whole page. `peers` may be None, with the reason."""
    drawn = sections(results, peers, why_no_peers)
    parts = [header(results, peers, drawn), lessons_section(results), targets_section(results)]
    for section in drawn:
        parts.append(section_html(section, results, peers))
    parts += [limits_section(results), cells_section(results), machine_section(results, peers)]
    title = "What an update costs here: passel"
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        '<meta name="color-scheme" content="light dark"/>',
        f"<title>{escape(title)}</title>",
        f"<style>{style.VARIABLES}{style.DRAWING}{CSS}</style>", "</head>", "<body>", "<main>",
        *[part for part in parts if part],
        "<footer>Made by tools/bench; every figure on this page was measured in one run. "
        "docs/benchmarks.md says how.</footer>",
        "</main>", "</body>", "</html>"]) + "\n"


def emphasized(text):
    """Escaped, with `code` and *emphasis*."""
    pieces = escape(text).split("`")
    text = "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
    pieces = text.split("*")
    return "".join(f"<em>{piece}</em>" if i % 2 else piece for i, piece in enumerate(pieces))


def header(results, peers, drawn):
    facts = dict(results.machine)
    machine = ", ".join(facts[name] for name in ("processor", "cores", "host") if name in facts)
    parts = ["<header>", "<h1>What an update costs here</h1>",
             f'<p class="sub">{escape(machine or "an unknown machine")}</p>']
    if results.interrupted:
        parts.append('<p class="warning">The run was interrupted: what is here is complete, '
                     "the rest was not measured.</p>")
    parts += [f'<p class="warning">{escape(capital(text))}.</p>' for text in results.warnings]
    sentences = ([advice.targets(results) + "."] if advice.targets(results) else [])
    sentences += advice.sentences(results) + ([results.advice] if results.advice else [])
    if peers is not None and peers.verdicts:
        kinds = [kind for _, _, _, kind in peers.verdicts]
        sentences.append(
            f"Beside other systems passel is ahead in {kinds.count('ahead')} of {len(kinds)} "
            f"comparisons, within 5 % in {kinds.count('tie')}, behind in {kinds.count('behind')}.")
    if sentences:
        parts.append("<ul>" + "".join(f"<li>{emphasized(s)}</li>" for s in sentences) + "</ul>")
    promises = advice.guarantees(results)
    if promises:
        parts += ["<details><summary>What each mode guarantees</summary>", "<dl>"]
        parts += [f"<dt>{escape(mode)}</dt><dd>{escape(text)}</dd>" for mode, text in promises]
        parts += ["</dl>", "</details>"]
    links = [("targets", "Targets")] + [(s.anchor, s.title) for s in drawn] + [
        ("limits", "Limits"), ("cells", "All cells"), ("machine", "The machine")]
    parts.append("<nav>" + " ".join(f'<a href="#{anchor}">{escape(title)}</a>'
                                    for anchor, title in links) + "</nav>")
    return "\n".join(parts + ["</header>"])


def lessons_section(results):
    said = lessons.sentences(results)
    if not said:
        return ""
    items = "".join(f"<li>{emphasized(capital(text))}.</li>" for text in said)
    return f'<section id="lessons">\n<h2>What this run says</h2>\n<ul>{items}</ul>\n</section>'


def capital(text):
    return figures.capital(text.rstrip("."))


def section_html(section, results, peers):
    parts = [f'<section id="{section.anchor}">', f"<h2>{escape(section.title)}</h2>"]
    if section.figures:
        parts.append(f"<p>{emphasized(section.text)}</p>")
    if section.missing:
        parts.append(f'<p class="missing">Not here: {escape(section.missing.rstrip("."))}.</p>')
    if section.figures:
        parts.append('<div class="figures">')
        parts += [figure_html(figure) for figure in section.figures]
        parts.append("</div>")
    if section.note:
        parts.append(f'<p class="note">{escape(section.note)}</p>')
    if section.anchor == "peers" and peers is not None:
        parts.append(verdicts_html(peers))
    return "\n".join(parts + ["</section>"])


def figure_html(figure):
    wide = " class=\"wide\"" if figure.wide == figures.WIDE else ""
    return (f'<figure{wide} id="figure-{escape(figure.name)}">\n'
            f'{figure.draw(figure.wide).render("wide")}'
            f'{figure.draw(figures.PHONE).render("phone")}</figure>')


def table_html(heads, rows):
    """`heads` are (text, class); `rows` lists of HTML cells."""
    def cell(name, text, classes, head=""):
        """On a phone a row is a block of lines, where each figure needs the head of its column."""
        attributes = (f' class="{classes}"' if classes else "") + (
            f' data-head="{escape(head)}"' if head else "")
        return f"<{name}{attributes}>{text}</{name}>"
    head = "".join(cell("th", escape(text), classes) for text, classes in heads)
    body = "".join("<tr>" + "".join(
        cell("td", text, classes, name) for text, (name, classes) in zip(row, heads, strict=True))
        + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>' \
        "</table></div>"


def number_or_nothing(value, write=words.table_number):
    return "" if value is None else escape(write(value))


def row_cells(row):
    mark = {"met": "✓ met", "missed": "✗ missed", "WRONG": "✗ WRONG"}.get(row.verdict,
                                                                        row.verdict)
    kind = {"met": "met", "missed": "missed", "WRONG": "wrong"}.get(row.verdict, "")
    what = escape(row.what)
    if row.reason:
        what += f'<br/><span class="sub">{escape(row.reason)}</span>'
    spread = "" if row.spread is None else words.percent(row.spread) + (
        " !" if row.spread > 0.20 else "")
    return [what, number_or_nothing(row.measured), number_or_nothing(row.limit),
            number_or_nothing(row.reference), escape(row.unit), number_or_nothing(row.ratio), escape(row.target), escape(spread),
            f'<span class="{kind}">{escape(mark)}</span>']


ROW_HEADS = [("what", ""), ("measured", ""), ("limit", ""), ("reference", ""), ("unit", "words"),
             ("ratio", ""), ("target", ""), ("spread", ""), ("verdict", "verdict")]


def targets_section(results):
    with_target = [row for row in results.rows if row.target]
    others = [row for row in results.rows if not row.target]
    parts = ['<section id="targets">', "<h2>Targets</h2>"]
    if not results.rows:
        return "\n".join(parts + ['<p class="missing">Not here: no row of the table was measured.'
                                  "</p>", "</section>"])
    parts.append("<p>Each figure beside what the same run measured in turn with it: a limit, which "
                 "the same work cannot beat, or a reference, which it may. The ratio is the one "
                 "over the other. A spread above 20 %, marked !, means: measure again on a quieter "
                 "machine.</p>")
    if with_target:
        parts.append(table_html(ROW_HEADS, [row_cells(row) for row in with_target]))
    if others:
        parts.append(f"<details><summary>{words.plural(len(others), 'row')} without a target"
                     "</summary>")
        heads = [head for head in ROW_HEADS if head[0] not in ("target", "verdict")]
        keep = [i for i, head in enumerate(ROW_HEADS) if head in heads]
        parts.append(table_html(heads, [[row_cells(row)[i] for i in keep] for row in others]))
        parts.append("</details>")
    return "\n".join(parts + ["</section>"])


def limits_section(results):
    parts = ['<section id="limits">', "<h2>What this machine can do</h2>"]
    if not results.limits:
        return "\n".join(parts + ['<p class="missing">Not here: no limit was measured (--filter '
                                  "BM_Limit).</p>", "</section>"])
    parts.append("<p>Memory, copies and hand-overs without anything of passel, in the same "
                 "run.</p>")
    rows = [[escape(what), "" if size is None else escape(byte_count(size)),
             "" if cores is None else f"{cores:.0f}", escape(words.significant(value, 4)),
             escape(unit)] for what, size, cores, value, unit in results.limits]
    parts.append(table_html([("what", ""), ("size", ""), ("cores", ""), ("value", ""),
                             ("unit", "words")], rows))
    return "\n".join(parts + ["</section>"])


def byte_count(size):
    for limit, unit in ((2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB")):
        if size >= limit:
            return f"{words.short(size / limit)} {unit}"
    return f"{size:.0f} B"


def cells_section(results):
    parts = ['<section id="cells">', "<h2>All cells</h2>"]
    if not results.cells:
        return "\n".join(parts + ['<p class="missing">Not here: no cell of the update matrix was '
                                  "measured.</p>", "</section>"])
    measured = results.measured()
    parts.append("<p>One row for each kind of update that was measured, with one core for each "
                 "writer if nothing else is said. The ratio says how many times its reference, the bare loop, an "
                 "update takes, within pairs of runs. Lost are updates of elements, counted with "
                 "numbers whose sum is known exactly; busy blocks were claimed by another writer "
                 "at the first try, overlapped ones were entered all the same.</p>")
    heads = [("cell", ""), ("parameters", ""), ("writers", ""), ("p50", ""), ("p99", ""),
             ("p99.9", ""), ("max", ""), ("reference", ""), ("ratio", ""),
             ("lost", ""), ("busy", ""), ("overlapped", "")]
    measured.sort(key=lambda c: (c.op, c.optimizer, style.order_of(c.mode), c.elements, c.writers,
                                 c.placement != "own", c.placement, c.pages, c.rate))
    rows = []
    for cell in measured:
        where = figures.where(cell) if (cell.placement, cell.pages) != ("own", "4k") else ""
        name = op_and_mode(cell) + (f", {where}" if where else "")
        if cell.loop != "closed":
            name += f", open loop at {words.count(cell.rate)}/s"
        rows.append([escape(name), words.grouped(cell.elements), str(cell.writers)] + [
            number_or_nothing(value, words.duration)
            for value in (cell.p50, cell.p99, cell.p999, cell.max, cell.limit)] + [
            number_or_nothing(cell.ratio), escape(figures.lost(cell)),
            number_or_nothing(cell.busy, words.grouped),
            number_or_nothing(cell.overlapped, words.grouped)])
    opened = " open=\"\"" if len(rows) <= 12 else ""
    parts += [f"<details{opened}><summary>{words.plural(len(rows), 'cell')}</summary>",
              table_html(heads, rows), "</details>"]
    others = [cell for cell in results.cells if cell.why_not]
    if others:
        parts += [f"<details><summary>{words.plural(len(others), 'cell')} without a figure"
                  "</summary>",
                  table_html([("cell", ""), ("why", "words")],
                             [[f"<code>{escape(cell.name)}</code>", escape(cell.why_not)]
                              for cell in others]), "</details>"]
    return "\n".join(parts + ["</section>"])


def op_and_mode(cell):
    return f"{figures.op_name(cell.op)}, {cell.mode}, {cell.optimizer}"


def verdicts_html(peers):
    if not peers.verdicts:
        return ""
    rows = [[escape(what), number_or_nothing(ours, words.significant),
             number_or_nothing(other, words.significant),
             f'<span class="{({"ahead": "met", "behind": "missed"}).get(kind, "")}">{escape(kind)}'
             "</span>"] for what, ours, other, kind in peers.verdicts]
    not_ahead = sum(kind != "ahead" for _, _, _, kind in peers.verdicts)
    return (f"<details><summary>{words.plural(len(rows), 'comparison')}, passel not ahead in "
            f"{not_ahead}</summary>" + table_html(
                [("what", ""), ("passel", ""), ("the other", ""), ("passel is", "verdict")], rows)
            + "</details>")


def machine_section(results, peers):
    parts = ['<section id="machine">', "<h2>The machine</h2>", "<dl>"]
    facts = list(results.machine)
    if results.other_cores is not None:
        facts.append(("load", f"{results.other_cores:.1f} cores busy with other programs, "
                              f"{100 * (results.steal or 0):.1f} % steal"))
    if results.seconds:
        facts.append(("run", f"{results.seconds:.0f} s"))
    if peers is not None:
        facts += [(f"peers: {name.replace('_', ' ')}", value)
                  for name, value in peers.machine.items()]
        facts += [(name, version) for name, version in peers.versions.items()]
    parts += [f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts]
    parts.append("</dl>")
    notes = results.notes + [f"{row.what}: {row.note}" for row in results.rows if row.note]
    notes += [f"{cell.name}: {cell.note}" for cell in results.cells if cell.note]
    if notes:
        parts.append(f"<details><summary>{words.plural(len(notes), 'note')} of the run</summary>")
        parts += [f'<p class="note">{escape(note)}</p>' for note in notes]
        parts.append("</details>")
    return "\n".join(parts + ["</section>"])
