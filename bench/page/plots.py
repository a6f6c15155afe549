"""plots - lines, bars and shaded tables as SVG, by matplotlib, and numbers as people read them.

Without matplotlib (tools/setup --with bench) AVAILABLE is False and nothing can be drawn. The same
figures give the same bytes.
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
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
    AVAILABLE = True
except ImportError:
    AVAILABLE = False

WIDTH = 7  # inches
# Sharing -> (colour, mark, line): eight colours that stay apart for the common kinds of colour
# blindness, and marks for where two come close. In the order in which they are listed: the
# product's modes, what one would write instead, and what they are compared with.
STYLES = {
    "hogwild": ("#0b67a8", "o", "-"), "locked": ("#cf5200", "s", "-"),
    "barrier": ("#00835f", "^", "-"), "replicas": ("#a3478a", "D", "-"),
    "ssp": ("#957000", "v", "-"), "naive": ("#6a6d72", "x", ":"),
    "atomic": ("#3d97cc", "+", ":"), "mutex": ("#7d5334", "*", ":"),
    "private": ("#44474c", "", "--"), "reference": ("#44474c", "", "--"),
}
OTHER = ("#9a9da2", ".", ":")


def order_of(sharing):
    """For sorting: as in STYLES, then what is not known, by name."""
    return [*STYLES, sharing].index(sharing), sharing


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


class Line(NamedTuple):
    """`key` gives the style (STYLES), `label` its name. `points` are (x, y), x ascending."""
    key: str
    label: str
    points: list


def _new(title, height=4.2):
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(textwrap.fill(title, 10 * WIDTH), fontsize=11, fontweight="bold", x=0.01,
                    ha="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure, title):
    """The drawing as an element for HTML; its title is there for who cannot see it."""
    out = io.StringIO()
    # The salt keeps the names inside two drawings of one page apart, and the same in each run.
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg",
                       metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg"):])
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)


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
        colour, mark, kind = STYLES.get(line.key, OTHER)
        if len(line.points) == 1:
            mark = mark or "_"
        elif not marks:
            mark = ""
        axes.plot(*zip(*line.points), color=colour, linestyle=kind, label=line.label, marker=mark,
                  markersize=20 if mark == "_" else 5)
    scale = "log" if log else "linear"
    axes.set(xlabel=x_title, ylabel=y_title, xscale=scale, yscale=scale)
    axes.set_ylim(bottom=None if log else 0)
    _axis(axes.xaxis, x_write, x_ticks)
    _axis(axes.yaxis, y_write)
    axes.grid(axis="y", color="#e9eaeb")
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    return _svg(figure, title)


def bars(title, x_title, drawn):
    """One bar below the other for each (name, key, value, text)."""
    figure, axes = _new(title, 1.2 + 0.32 * len(drawn))
    names, keys, values, texts = zip(*drawn)
    found = axes.barh(range(len(drawn)), values, 0.75,
                      color=[STYLES.get(key, OTHER)[0] for key in keys])
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
