"""chart - lines over an axis each, with the name of each line at its end."""

from dataclasses import dataclass

import scale
import style
import words
from svg import FONT, Drawing

LINE = FONT + 4   # pixels from one line of text to the next
NARROW = 400      # drawings below this width are for a phone


@dataclass
class Line:
    """One line of a chart. `key` gives colour and mark (style.SERIES), `label` is written at its
    end. `points` are (x, y), x ascending."""
    key: str
    label: str
    points: list
    markers: bool = True
    kind: str = ""  # of style.DRAWING's polylines; "" as the key says


@dataclass
class Axis:
    """`ticks` are (value, text), None for round values; `write` makes the texts of those."""
    title: str
    log: bool = False
    ticks: list | None = None
    write: object = words.short
    low: float | None = None   # None: what the lines need
    high: float | None = None

    def range_of(self, values):
        low = min(values) if self.low is None else self.low
        high = max(values) if self.high is None else self.high
        if self.log:
            nice = scale.nice_log_range(low, high)
            return (nice[0] if self.low is None else low), (nice[1] if self.high is None else high)
        return low, high


def line_chart(width, height, title, description, x_axis, y_axis, lines):
    """The drawing. REQUIRES: every line has a point; no value <= 0 on a logarithmic axis."""
    drawing = Drawing(width, height, title, description)
    plot = Plot(drawing, title, x_axis, y_axis, lines)
    plot.draw_axes()
    for line in reversed(lines):  # the first one on top
        plot.draw_line(line)
    plot.draw_labels()
    return drawing


class Plot:
    def __init__(self, drawing, title, x_axis, y_axis, lines):
        self.drawing, self.lines = drawing, lines
        self.x_axis, self.y_axis = x_axis, y_axis
        points = [point for line in lines for point in line.points]
        self.top = draw_title(drawing, title) + LINE + 12
        self.bottom = drawing.height - 2 * LINE - 8
        label = max((words.width(line.label, FONT) for line in lines), default=0)
        self.right = drawing.width - label - 24
        low, high = y_axis.range_of([y for _, y in points])
        self.y = (scale.Log if y_axis.log else scale.Linear)(low, high, self.bottom, self.top)
        most = max(3, int((self.bottom - self.top) / 34))
        self.y_ticks = y_axis.ticks or [(v, y_axis.write(v)) for v in self.y.ticks(most)]
        self.left = max(words.width(text, FONT) for _, text in self.y_ticks) + 10
        low, high = x_axis.range_of([x for x, _ in points])
        if x_axis.log and x_axis.ticks:
            low, high = min(x for x, _ in points), max(x for x, _ in points)
        kind = scale.Log if x_axis.log else scale.Linear
        self.x = kind(low, high, self.left + 8, self.right)
        most = max(2, int((self.right - self.left) / 60))
        self.x_ticks = x_axis.ticks or [(v, x_axis.write(v)) for v in self.x.ticks(most)]

    def draw_axes(self):
        d = self.drawing
        d.text(0, self.top - 14, self.y_axis.title, "muted")
        for value, text in self.y_ticks:
            y = self.y(value)
            d.line(self.left, y, self.right, y, "grid")
            d.text(self.left - 6, y + 4, text, "muted", "end")
        d.line(self.left, self.bottom, self.right, self.bottom, "axis")
        end = float("-inf")
        for value, text in self.x_ticks:
            x, half = self.x(value), words.width(text, FONT) / 2
            if not self.left - 1 <= x <= self.right + 1:
                continue
            d.line(x, self.bottom, x, self.bottom + 4, "axis")
            if x - half < end + 6:
                continue  # the mark stands, its text would run into the one before
            d.text(x, self.bottom + LINE, text, "muted", "middle")
            end = x + half
        d.text((self.left + self.right) / 2, d.height - 4, self.x_axis.title, "muted", "middle")

    def draw_line(self, line):
        kind = line.kind or style.kind_of(line.key)
        points = [(self.x(x), self.y(y)) for x, y in line.points]
        colour = style.series_class(line.key)
        if len(points) > 1:
            self.drawing.path(points, f"{colour} {kind}")
        shape = style.marker_of(line.key)
        if shape and (line.markers or len(points) == 1):
            for x, y in points:
                self.drawing.marker(x, y, shape, f"fill {colour}", 3.5)
        elif len(points) == 1:
            (x, y), = points
            self.drawing.path([(x - 10, y), (x + 10, y)], f"{colour} {kind}")

    def draw_labels(self):
        ends = [(self.x(line.points[-1][0]), self.y(line.points[-1][1])) for line in self.lines]
        places = scale.spread_labels([y for _, y in ends], LINE - 1, self.top, self.bottom)
        at = self.right + 10
        for line, (x, y), place in zip(self.lines, ends, places, strict=True):
            if abs(place - y) > 3 or x < self.right - 1:
                self.drawing.path([(x + 5, y), (at - 2, place)], "leader")
            shape = style.marker_of(line.key)
            colour = style.series_class(line.key)
            if shape:
                self.drawing.marker(at + 4, place, shape, f"fill {colour}", 3.5)
            else:
                self.drawing.path([(at - 1, place), (at + 9, place)], f"{colour} limit")
            self.drawing.text(at + 13, place + 4, line.label)


def draw_title(drawing, title):
    """Writes it, in as many lines as it needs; returns where the last one ends."""
    y = 0
    for line in words.wrap(title, 14, drawing.width):
        y += LINE + 1
        drawing.text(0, y - 3, line, "title")
    return y
