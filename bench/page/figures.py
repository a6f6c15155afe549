"""figures - what the drawings of the report share: how one is kept, what it is called, and how
cells are sorted into panels.

A figure is drawn for a width, so that a phone gets a drawing of its own rather than a small one.
The drawings themselves are in cell_figures.py, training_figures.py and peer_figures.py.
"""

import math
from dataclasses import dataclass

import style
import words
from chart import NARROW

WIDE, HALF, PHONE = 1040, 510, 340   # widths in pixels
MOST_GROUPS = 8                      # of the latencies, two panels each
MOST_PANELS = 8                      # of one section; what is left out is said
USUAL_SIZE = 79510                   # parameters of an MLP 784-100-10
OPS = {"push": "push", "push_pull": "push and pull", "round": "round"}


@dataclass
class Figure:
    """`draw(width)` makes the drawing; `name` is that of its file."""
    name: str
    draw: object
    wide: int = HALF


@dataclass
class Section:
    """`figures`, or `missing`: why there are none. `note` follows them."""
    anchor: str
    title: str
    text: str
    figures: list
    missing: str = ""
    note: str = ""


def op_name(op):
    return OPS.get(op, op)


def where(cell):
    """What else a title has to say: "one core each, huge pages"."""
    said = {"own": "one core each", "one": "all on one core", "free": "placed by the kernel"}
    parts = [said.get(cell.placement, cell.placement)]
    if cell.pages and cell.pages != "4k":
        parts.append(f"{cell.pages} pages")
    return ", ".join(part for part in parts if part)


def subject(cell):
    return f"{op_name(cell.op)}, {cell.optimizer}, {words.plural(cell.writers, 'writer')}"


def panels(cells, key, least):
    """Cells in groups of the same key, only groups of which least(group) is true: those with the
    most cells first, then those near the usual size, then by key."""
    groups = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    kept = [group for group in groups.values() if least(group)]
    return sorted(kept, key=lambda g: (-len(g), abs(math.log(g[0].elements / USUAL_SIZE)),
                                       [str(part) for part in key(g[0])]))


def by_mode(cells):
    groups = {}
    for cell in cells:
        groups.setdefault(cell.mode, []).append(cell)
    return sorted(groups.items(), key=lambda item: style.order_of(item[0]))


def left_out(all_panels, kept):
    missing = len(all_panels) - len(kept)
    return f"{words.plural(missing, 'more panel')} of fewer cells: see the table of all cells." \
        if missing > 0 else ""


def no_cells(results, otherwise):
    if not results.cells:
        return "no cell of the update matrix was measured (--filter BM_Cell, or --full for all)"
    if not results.measured():
        return f"no cell could be measured: {results.cells[0].why_not}"
    return otherwise + " (--full measures more)"


def height_for(width):
    return 300 if width >= NARROW else 280


def multiple(cell):
    """How many times its reference, measured in turn, an update takes."""
    return cell.ratio or (cell.p50 / cell.limit if cell.limit else None)


def lost(cell):
    """Of all updates of elements; "" where they were not counted."""
    if cell.lost is None or not cell.pushes:
        return ""
    if cell.lost == 0:
        return "none"
    return f"{words.short(100 * cell.lost / (cell.pushes * cell.elements), 2)} %"


def capital(text):
    return text[:1].upper() + text[1:]


def describe(lines, x, unit):
    """The figures of a chart in words, for who cannot see it."""
    return "; ".join(f"{line.label}: " + ", ".join(
        f"{words.short(value)} {unit} at {words.count(at)} {x}" for at, value in line.points)
        for line in lines if len(line.points) <= 12)


def unit_for(top):
    """(factor, unit) of an axis that ends at `top` microseconds."""
    return next((factor, unit) for limit, factor, unit in (
        (1, 1e3, "ns"), (1e3, 1, "µs"), (1e6, 1e-3, "ms"), (math.inf, 1e-6, "s")) if top < limit)
