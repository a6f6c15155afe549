"""plots - lines, bars, stacked bars and shaded tables as SVG, by matplotlib.

Without matplotlib (tools/setup --with bench) AVAILABLE is False and nothing can be drawn. The same
figures give the same bytes.
"""

import html
import io
import re
import textwrap
from dataclasses import dataclass

import words

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
    AVAILABLE = True
except ImportError:
    AVAILABLE = False

HALF, WIDE = (7, 4.2), (14, 5.5)  # inches
# Sharing -> (colour, mark, line): eight colours that stay apart for the common kinds of colour
# blindness, and marks for where two come close.
STYLES = {
    "hogwild": ("#0b67a8", "o", "-"), "locked": ("#cf5200", "s", "-"),
    "barrier": ("#00835f", "^", "-"), "replicas": ("#a3478a", "D", "-"),
    "ssp": ("#957000", "v", "-"), "naive": ("#6a6d72", "x", ":"),
    "atomic": ("#3d97cc", "+", ":"), "mutex": ("#7d5334", "*", ":"),
    "private": ("#44474c", "", "--"), "reference": ("#44474c", "", "--"),
    "open 1": ("#44474c", "", "--"), "open 2": ("#44474c", "", ":"),
}
OTHER = ("#9a9da2", ".", ":")
PARTS = ("#c9d3dc", "#9cc9ea", "#5ba6d9", "#f0a35e", "#e6d34f", "#9a9da2")  # of a stack, in order
LONGEST_WHISKER = 1.5  # times the longest bar


@dataclass
class Line:
    """`key` gives the style (STYLES), `label` its name. `points` are (x, y), x ascending."""
    key: str
    label: str
    points: list


@dataclass
class Bar:
    """`value` None: `text` says why there is no bar. `end`: of a thin line that goes on from it (a
    p99, say)."""
    name: str
    value: float | None
    text: str
    key: str = "other"
    end: float | None = None
    group: str = ""


def _new(title, size=HALF):
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(textwrap.fill(title, int(10 * size[0])), fontsize=11, fontweight="bold",
                    x=0.01, ha="left")
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


def lines(title, x_title, y_title, drawn, x_ticks=None, x_write=words.count,
          y_write=words.duration, x_log=True, y_log=True, y_from=None, marks=True):
    """Lines over an axis each."""
    figure, axes = _new(title)
    for line in drawn:
        colour, mark, kind = STYLES.get(line.key, OTHER)
        if len(line.points) == 1:
            mark = mark or "_"
        elif not marks:
            mark = ""
        axes.plot(*zip(*line.points), color=colour, linestyle=kind, label=line.label, marker=mark,
                  markersize=20 if mark == "_" else 5)
    axes.set_xscale("log" if x_log else "linear")
    axes.set_yscale("log" if y_log else "linear")
    axes.set_ylim(bottom=y_from)
    _axis(axes.xaxis, x_write, x_ticks)
    _axis(axes.yaxis, y_write)
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    axes.grid(axis="y", color="#e9eaeb")
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    return _svg(figure, title)


def _behind(axes, x, y, text, **style):
    axes.annotate(text, (x, y), (6, 0), textcoords="offset points", va="center", **style)


def bars(title, x_title, drawn, write=words.short, reference=None):
    """One bar below the other, under the name of their group, each with its figure; a broken line
    at `reference`."""
    heights, names, y, group = [], [], 0, None
    for bar in drawn:
        y += 1 + (bar.group != group and group is not None) * 0.5
        group = bar.group
        heights.append(y)
        names.append(f"{bar.group}: {bar.name}" if bar.group else bar.name)
    figure, axes = _new(title, (HALF[0], 1.2 + 0.32 * y))
    longest = max([bar.value for bar in drawn if bar.value is not None] + [reference or 0])
    # A line far beyond all bars would leave no room for them: it is cut off, with an arrow.
    most = min(max([bar.end or 0 for bar in drawn] + [longest]), LONGEST_WHISKER * longest)
    for y, bar in zip(heights, drawn):
        if bar.value is None:
            _behind(axes, 0, y, bar.text, color="#5c6066")
            continue
        axes.barh(y, bar.value, 0.75, color=STYLES.get(bar.key, OTHER)[0])
        end = min(most, max(bar.value, bar.end or 0))
        if end > bar.value:
            axes.annotate("", (end, y), (bar.value, y), arrowprops={
                "arrowstyle": "->" if bar.end > most else "-", "shrinkA": 0, "shrinkB": 0})
        _behind(axes, max(end, reference or 0), y, bar.text, fontsize=9)
    if reference is not None:
        axes.axvline(reference, color=STYLES["reference"][0], linestyle="--")
    axes.set_yticks(heights, names)
    axes.set_ylim(heights[-1] + 0.7, heights[0] - 0.7)
    axes.set_xlim(0, (most or 1) * 1.4)  # room for the figures
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axes.set_xlabel(x_title)
    return _svg(figure, title)


def stacks(title, x_title, parts, drawn):
    """A bar in `parts` for each (name, values, text)."""
    figure, axes = _new(title, (WIDE[0], 1.6 + 0.4 * len(drawn)))
    most = max(sum(values) for _, values, _ in drawn)
    for y, (_, values, text) in enumerate(drawn):
        at = 0
        for part, (value, colour) in enumerate(zip(values, PARTS)):
            axes.barh(y, value, 0.75, at, color=colour, label="" if y else parts[part])
            if value > 0.04 * most:
                axes.text(at + value / 2, y, words.short(value, 2 if value < 100 else 3),
                          ha="center", va="center", fontsize=9)
            at += value
        _behind(axes, at, y, text)
    axes.set_yticks(range(len(drawn)), [name for name, _, _ in drawn])
    axes.invert_yaxis()
    axes.set_xlabel(x_title)
    axes.legend(bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    return _svg(figure, title)


def shades(title, names, values, unit):
    """A square table: row i, column j is values[i][j], None where there is none. Darker is more;
    the figures are in it while there is room."""
    figure, axes = _new(title, (HALF[0], 5.5))
    shown = axes.imshow([[float("nan") if v is None else v for v in row] for row in values],
                        cmap=matplotlib.colors.LinearSegmentedColormap.from_list(
                            "", ["#eef5fb", "#5ba6d9"]))
    if len(names) <= 12:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                axes.text(j, i, "·" if value is None else words.short(value), ha="center",
                          va="center", fontsize=9)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("to core")
    axes.set_ylabel("from core")
    figure.colorbar(shown, label=unit, shrink=0.8)
    return _svg(figure, title)
