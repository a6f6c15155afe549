"""plots - lines, bars, spans and shaded tables as SVG, by matplotlib, and numbers as people read them.

Without matplotlib (tools/setup --with bench) AVAILABLE is False, WHY_NOT says why, and nothing can be
drawn. The same figures give the same bytes.
"""

import html
import io
import math
import re
import textwrap
from typing import NamedTuple

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import (FixedLocator, FuncFormatter, LogLocator, MaxNLocator,
                                   NullLocator)
    AVAILABLE, WHY_NOT = True, ""
    # Whatever this user likes elsewhere; and a dollar is a dollar.
    matplotlib.rcdefaults()
    matplotlib.rcParams["text.parse_math"] = False
except (ImportError, KeyError) as error:  # no such setting: a version before 3.6
    AVAILABLE, WHY_NOT = False, str(error)

WIDTH = 7  # inches
NARROW = 5.6  # two beside one another on a wide screen
MOST_NAMES = 24  # of bars one below the other; more have numbers
DEATH, MODE = "#b3261e", "#957000"
MOST_ACROSS = 24    # events that go through the whole drawing
EVENTS_APART = 500  # parts of the axis; closer events are one line

def short(value, digits=3):
    """At most so many significant digits, no exponent and no zeros at the end: 1, 2.5, 351."""
    above = math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(0, digits - 1 - above)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value, units, step=1000):
    """`value` in the largest of `units`, each `step` times the one before, in which it is 1 or
    more when it has been rounded."""
    while float(short(value)) >= step and len(units) > 1:
        value, units = value / step, units[1:]
    return short(value) + units[0]


def duration(us):
    """A time given in microseconds: "850 ns", "9.48 µs", "1.2 ms", "3 s"."""
    return scaled(us * 1e3, (" ns", " µs", " ms", " s"))


def count(value):
    """A number of things: "16", "1 k", "79.5 k", "1.05 M"."""
    return scaled(value, ("", " k", " M", " G"))


def number(value):
    """As the terminal's table prints it: four significant digits from 1 on, no exponent."""
    if value is None:
        return ""
    size = abs(value)
    return f"{value:.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3}f}"


def grouped(value):
    return "" if value is None else f"{int(value):,}"


class Line(NamedTuple):
    """`points` are (x, y), x ascending; `colour`, `mark` and `kind` as matplotlib has them."""
    label: str
    points: list
    colour: str
    mark: str = ""
    kind: str = "-"


def _new(title, height=4.2, width=WIDTH):
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if title:
        figure.suptitle(textwrap.fill(title, 10 * WIDTH), fontsize=11, fontweight="bold", x=0.01,
                        ha="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure, words):
    """The drawing as an element for HTML; `words` are there for who cannot see it."""
    out = io.StringIO()
    # The salt keeps the names inside two drawings of one page apart, and the same in each run.
    with matplotlib.rc_context({"svg.hashsalt": words, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg",
                       metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg"):])
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(words)}"', 1)


def _axis(axis, write, ticks=None):
    """`ticks`, if given, are the values that are named."""
    low, high = axis.get_view_interval()
    if ticks:
        axis.set_major_locator(FixedLocator(ticks))
    elif axis.get_scale() == "log" and high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def lines(title, x_title, y_title, drawn, x_ticks, x_write=count, y_write=duration, log=True,
          marks=True):
    figure, axes = _new(title)
    for line in drawn:
        mark = line.mark if marks else ""
        if len(line.points) == 1:
            mark = line.mark or "_"
        axes.plot(*zip(*line.points), color=line.colour, linestyle=line.kind, label=line.label,
                  marker=mark, markersize=20 if mark == "_" else 5)
    scale = "log" if log else "linear"
    axes.set(xlabel=x_title, ylabel=y_title, xscale=scale, yscale=scale)
    axes.set_ylim(bottom=None if log else 0)
    _axis(axes.xaxis, x_write, x_ticks)
    _axis(axes.yaxis, y_write)
    axes.grid(axis="y", color="#e9eaeb")
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    return _svg(figure, title)


def bars(title, x_title, drawn):
    """One bar below the other for each (name, colour, value, text)."""
    figure, axes = _new(title, 1.2 + 0.32 * len(drawn))
    names, colours, values, texts = zip(*drawn)
    found = axes.barh(range(len(drawn)), values, 0.75, color=colours)
    axes.bar_label(found, texts, padding=6)
    axes.set_yticks(range(len(drawn)), names)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.4 * max(values)), xlabel=x_title)  # room for the figures
    return _svg(figure, title)


def shades(title, names, values, unit):
    """A square table: row i, column j is values[i][j], None where there is none. Darker is more;
    the figures are in it while there is room."""
    figure, axes = _new(title, 5.5)
    shown = axes.imshow([[float("nan") if v is None else v for v in row] for row in values],
                        cmap=matplotlib.colors.LinearSegmentedColormap.from_list(
                            "", ["#eef5fb", "#5ba6d9"]))
    if len(names) <= 12:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                axes.text(j, i, "·" if value is None else short(value), ha="center", va="center",
                          fontsize=9)
        axes.set(xticks=range(len(names)), xticklabels=names,
                 yticks=range(len(names)), yticklabels=names)
    axes.set(xlabel="to core", ylabel="from core")
    figure.colorbar(shown, label=unit, shrink=0.8)
    return _svg(figure, title)


def _key(axes, columns):
    """What the colours mean, above the drawing: it may be narrow."""
    axes.legend(bbox_to_anchor=(0, 1.01), loc="lower left", ncol=columns, frameon=False,
                borderpad=0, handlelength=1.4)


def course(words, x_title, y_title, drawn, x_write=count, y_write=count, events=(),
           log=False, top=None):
    """How something went: lines from 0 on, with gaps where y is None. `events` are (x, what it is)
    and are drawn across. REQUIRES: some y is not None."""
    figure, axes = _new("", 2.9, NARROW)
    for line in drawn:
        # A point between two gaps is no line.
        mark = "." if len(line.points) <= 40 else ""
        axes.plot([x for x, _ in line.points],
                  [math.nan if y is None else y for _, y in line.points], color=line.colour,
                  linestyle=line.kind, label=line.label, linewidth=1.4, marker=mark, markersize=5)
    axes.set(xlabel=x_title, ylabel=y_title, yscale="log" if log else "linear")
    # As far as the run went, whether or not y has a value there.
    right = 1.03 * max(x for line in drawn for x, _ in line.points) or 1
    axes.set_xlim(0, right)
    if not log:
        # Nothing but zeros needs a scale, too.
        zeros = not any(y for line in drawn for _, y in line.points)
        axes.set_ylim(bottom=0, top=1 if zeros else top)
    for kind, colour, dashes in (("death", DEATH, "--"), ("mode", MODE, ":")):
        at = {round(EVENTS_APART * x / right): x for x, what in events if what == kind}
        if at:
            # Many of them would hide the lines.
            height = 1 if len(at) <= MOST_ACROSS else 0.07
            axes.vlines(list(at.values()), 0, height, transform=axes.get_xaxis_transform(),
                        colors=colour, linestyles=dashes, linewidth=1,
                        label={"death": "a task died", "mode": "change of mode"}[kind])
    _axis(axes.xaxis, x_write)
    _axis(axes.yaxis, y_write)
    axes.grid(axis="y", color="#e9eaeb")
    _key(axes, 4)
    return _svg(figure, words)


def _rows(axes, names):
    """One below the other; with many of them their numbers alone."""
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(names)), names)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _height(rows):
    return 1.1 + min(0.3 * rows, 6)


def stacks(words, x_title, names, parts, x_write):
    """A bar for each of `names` of what it consists of: `parts` are (label, colour, values)."""
    figure, axes = _new("", _height(len(names)), NARROW)
    left = [0] * len(names)
    for label, colour, values in parts:
        axes.barh(range(len(names)), values, 0.8, left=left, color=colour, label=label)
        left = [so_far + value for so_far, value in zip(left, values)]
    _rows(axes, names)
    axes.set(xlabel=x_title)
    _axis(axes.xaxis, x_write)
    _key(axes, len(parts))
    return _svg(figure, words)


def lives(words, x_title, names, spans, deaths, x_write):
    """A row for each of `names`: `spans` are (row, from, to), `deaths` (row, at)."""
    figure, axes = _new("", _height(len(names)), NARROW)
    axes.barh([row for row, _, _ in spans], [to - start for _, start, to in spans], 0.5,
              left=[start for _, start, _ in spans], color="#8fb8d8", label="ran")
    axes.plot([at for _, at in deaths], [row for row, _ in deaths], color=DEATH, marker="x",
              linestyle="", markersize=7, markeredgewidth=2, label="died")
    _rows(axes, names)
    axes.set(xlabel=x_title)
    axes.set_xlim(left=0)
    _axis(axes.xaxis, x_write)
    _key(axes, 2)
    return _svg(figure, words)
