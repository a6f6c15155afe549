"""plots - lines, bars and shaded tables as SVG, by matplotlib.

Without matplotlib (tools/setup --with bench) AVAILABLE is False and nothing can be drawn. The same
figures give the same bytes.
"""

import html
import io
import re
import textwrap
from dataclasses import dataclass

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
    names = list(STYLES)
    return (names.index(sharing) if sharing in names else len(names), sharing)


# --- Numbers as people read them ------------------------------------------------------------------


def short(value, digits=3):
    """At most so many significant digits, no exponent and no zeros at the end: 1, 2.5, 351."""
    size, decimals = abs(value), digits - 1
    while size >= 10 and decimals > 0:
        size /= 10
        decimals -= 1
    while 0 < size < 1 and decimals < 9:
        size *= 10
        decimals += 1
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value, units):
    """`value` in the first of `units`, (limit, factor, text), below whose limit it stays when it
    has been rounded."""
    for limit, factor, unit in units:
        text = short(value * factor)
        if abs(float(text)) < limit * factor:
            break
    return text + unit


def duration(us):
    """A time given in microseconds: "850 ns", "9.48 µs", "1.2 ms", "3 s"."""
    return _scaled(us, ((1, 1e3, " ns"), (1e3, 1, " µs"), (1e6, 1e-3, " ms"), (1e18, 1e-6, " s")))


def count(value):
    """A number of things: "16", "1 k", "79.5 k", "1.05 M"."""
    return _scaled(value, ((1e3, 1, ""), (1e6, 1e-3, " k"), (1e9, 1e-6, " M"), (1e18, 1e-9, " G")))


# --- Drawings -------------------------------------------------------------------------------------


@dataclass
class Line:
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
    axes.set_xscale("log" if log else "linear")
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(bottom=None if log else 0)
    _axis(axes.xaxis, x_write, x_ticks)
    _axis(axes.yaxis, y_write)
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    axes.grid(axis="y", color="#e9eaeb")
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    return _svg(figure, title)


def bars(title, x_title, drawn):
    """One bar below the other for each (name, key, value, text)."""
    figure, axes = _new(title, 1.2 + 0.32 * len(drawn))
    for y, (_, key, value, text) in enumerate(drawn):
        axes.barh(y, value, 0.75, color=STYLES.get(key, OTHER)[0])
        axes.annotate(text, (value, y), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(drawn)), [bar[0] for bar in drawn])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.4 * max(bar[2] for bar in drawn))  # room for the figures
    axes.set_xlabel(x_title)
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
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("to core")
    axes.set_ylabel("from core")
    figure.colorbar(shown, label=unit, shrink=0.8)
    return _svg(figure, title)
