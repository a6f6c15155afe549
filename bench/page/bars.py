"""bars - horizontal bars with their names and figures, stacked bars, a table of shaded cells."""

from dataclasses import dataclass

import scale
import style
import words
from chart import LINE, NARROW, draw_title
from svg import FONT, Drawing

BAR = 18            # pixels
LONGEST_LINE = 1.5  # times the longest bar


@dataclass
class Bar:
    """`value` None: `text` says why there is no bar. `end`, if given, is the end of a thin line
    that goes on from the bar (a p99, say)."""
    name: str
    value: float | None
    text: str
    key: str = "other"
    end: float | None = None
    group: str = ""


def bar_chart(width, title, description, axis_title, bars, write=words.short, reference=None):
    """One bar below the other, from 0, under the name of their group. The figure stands behind the
    bar; a broken line at `reference`, if given."""
    drawing = Drawing(width, 0, title, description)
    y = draw_title(drawing, title) + 8
    names_above = width < NARROW
    name_width = 0 if names_above else max(words.width(bar.name, FONT) for bar in bars) + 10
    figures = max((words.width(bar.text, FONT) for bar in bars if bar.value is not None), default=0)
    longest = max([bar.value for bar in bars if bar.value is not None] + [reference or 0])
    # A line that goes on far beyond all bars would leave no room for them: it is cut off.
    most = min(max([bar.end or 0 for bar in bars] + [longest]), LONGEST_LINE * longest)
    room = width - name_width - figures - 14
    x = scale.Linear(0, most or 1, name_width, name_width + room)
    start = y
    marks, group = [], ""  # drawn over the grid
    for bar in bars:
        if bar.group != group:
            group = bar.group
            marks.append(("text", (0, y + LINE - 2, group, "muted")))
            y += LINE + 4
        if names_above:
            marks.append(("text", (0, y + LINE - 4, bar.name)))
            y += LINE
        else:
            marks.append(("text", (name_width - 8, y + BAR - 5, bar.name, "", "end")))
        if bar.value is None:
            for line in words.wrap(bar.text, FONT, width - name_width):
                marks.append(("text", (name_width, y + BAR - 5, line, "muted")))
                y += LINE
            y += BAR + 6 - LINE
            continue
        end = x(min(most, max(bar.value, bar.end or 0)))
        marks.append(("rectangle", (name_width, y, x(bar.value) - name_width, BAR,
                                    f"fill {style.series_class(bar.key)}", 2)))
        if bar.end is not None and bar.end > bar.value:
            middle = y + BAR / 2
            marks.append(("line", (x(bar.value), middle, end, middle, "whisker")))
            if bar.end <= most:
                marks.append(("line", (end, middle - 5, end, middle + 5, "whisker")))
            else:
                marks.append(("path", ([(end - 5, middle - 4), (end, middle),
                                        (end - 5, middle + 4)], "whisker")))
        if reference is not None:  # the figures stand clear of its line
            end = x(most)
        marks.append(("text", (end + 6, y + BAR - 5, bar.text)))
        y += BAR + 6
    if reference is not None:
        marks.append(("path", ([(x(reference), start), (x(reference), y)], "s-limit limit")))
    finish(drawing, marks, x, start, y, write, axis_title)
    return drawing


def finish(drawing, marks, x, start, y, write, axis_title):
    """The axis from 0 below `y`, and `marks` (method of the drawing, arguments) over its grid."""
    for value in x.ticks(max(3, int((x.end - x.start) / 60))):
        drawing.line(x(value), start, x(value), y, "grid")
        drawing.text(x(value), y + LINE - 2, write(value), "muted",
                     "start" if value == 0 else "middle")
    drawing.line(x.start, start, x.start, y, "axis")
    for kind, arguments in marks:
        getattr(drawing, kind)(*arguments)
    y += LINE - 2
    for line in words.wrap(axis_title, FONT, drawing.width - x.start):
        y += LINE
        drawing.text(x.start, y, line, "muted")
    drawing.height = y + 6


@dataclass
class Stack:
    """`parts` are (key, value), drawn one after the other; `text` stands behind them."""
    name: str
    parts: list
    text: str
    group: str = ""


def stacked_bars(width, title, description, axis_title, stacks, write=words.short):
    drawing = Drawing(width, 0, title, description)
    y = draw_title(drawing, title) + 4
    # The key to the colours; the figures in the parts are in the same order.
    x_key = 0
    for key in [key for key, _ in stacks[0].parts]:
        needed = 16 + words.width(key, FONT) + 14
        if x_key > 0 and x_key + needed > width:
            x_key, y = 0, y + LINE + 2
        drawing.rectangle(x_key, y + 3, 11, 11, f"fill {style.series_class(key)}", 2)
        drawing.text(x_key + 16, y + 13, key)
        x_key += needed
    y += LINE + 10
    names_above = width < NARROW
    name_width = 0 if names_above else max(words.width(stack.name, FONT) for stack in stacks) + 10
    figures = max(words.width(stack.text, FONT) for stack in stacks)
    room = width - name_width - figures - 14
    most = max(sum(value for _, value in stack.parts) for stack in stacks)
    x = scale.Linear(0, most or 1, name_width, name_width + room)
    start, marks, group = y, [], ""
    for stack in stacks:
        if stack.group != group:
            group = stack.group
            marks.append(("text", (0, y + LINE - 2, group, "muted")))
            y += LINE + 4
        if names_above:
            marks.append(("text", (0, y + LINE - 4, stack.name)))
            y += LINE
        else:
            marks.append(("text", (name_width - 8, y + BAR, stack.name, "", "end")))
        at = 0
        for key, value in stack.parts:
            left, right = x(at), x(at + value)
            marks.append(("rectangle", (left, y, right - left, BAR + 8,
                                        f"fill gap {style.series_class(key)}")))
            text = words.short(value, 2 if value < 100 else 3)
            if words.width(text, FONT) + 6 <= right - left:
                marks.append(("text", ((left + right) / 2, y + BAR - 1, text, "on-part", "middle")))
            at += value
        marks.append(("text", (x(at) + 6, y + BAR - 1, stack.text)))
        y += BAR + 14
    finish(drawing, marks, x, start, y, write, axis_title)
    return drawing


def heat_map(width, title, description, names, values, unit, corner):
    """A square table: row i, column j is values[i][j], None where there is none. Darker is more.
    With so many rows that figures do not fit, the shades and their key remain."""
    drawing = Drawing(width, 0, title, description)
    y = draw_title(drawing, title) + 6
    known = [value for row in values for value in row if value is not None]
    low, high = (min(known), max(known)) if known else (0, 0)
    texts = [[("" if value is None else words.short(value)) for value in row] for row in values]
    left = max([words.width(name, FONT) for name in names] + [words.width(corner, FONT)]) + 10
    size = min(72, (width - left) / len(names))
    figures = max(words.width(text, FONT) for row in texts for text in row) + 4 <= size
    height = size if not figures else max(22, min(size, 40))
    drawing.text(0, y + LINE - 4, corner, "muted")
    named = words.width(max(names, key=len), FONT) + 4 <= size
    for j, name in enumerate(names):
        if named:
            drawing.text(left + (j + .5) * size, y + LINE - 4, name, "muted", "middle")
    y += LINE + 2
    for i, name in enumerate(names):
        if height >= LINE - 2:
            drawing.text(left - 8, y + height / 2 + 4, name, "muted", "end")
        for j, value in enumerate(values[i]):
            x = left + j * size
            if value is None:
                drawing.line(x + size / 2 - 4, y + height / 2, x + size / 2 + 4, y + height / 2,
                             "axis")
                continue
            drawing.rectangle(x, y, size, height, "fill gap s-accent",
                              opacity=shade(value, low, high))
            if figures:
                drawing.text(x + size / 2, y + height / 2 + 4, texts[i][j], "", "middle")
        y += height
    y += 6
    key = 120 if width < NARROW else 160
    drawing.text(left, y + LINE, words.short(low), "muted")
    begin = left + words.width(words.short(low), FONT) + 6
    for step in range(8):
        drawing.rectangle(begin + step * key / 8, y + 5, key / 8, 12, "fill s-accent",
                          opacity=shade(step, 0, 7))
    drawing.text(begin + key + 6, y + LINE, f"{words.short(high)} {unit}", "muted")
    drawing.height = y + LINE + 8
    return drawing


def shade(value, low, high):
    """Opacity of the accent colour, low enough for figures to stay readable over it."""
    share = 0.0 if high <= low else (value - low) / (high - low)
    return round(0.08 + 0.52 * share, 3)
