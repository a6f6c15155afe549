"""svg - a drawing as text: shapes with CSS classes, no script, the same bytes for the same input.

Colours are in the classes (style.py), so that one drawing serves light and dark pages.
"""

import html

FONT = 12   # pixels, of everything that is written in a drawing


def escape(text):
    """For HTML and XML, in text and in attributes."""
    return html.escape(str(text), quote=True)


def number(value):
    """A coordinate: at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


class Drawing:
    """Of `width` x `height` pixels; `title` and `description` are for who cannot see it."""

    def __init__(self, width, height, title, description=""):
        self.width, self.height = width, height
        self.title, self.description = title, description
        self.parts = []

    def _add(self, name, classes, text=None, **attributes):
        words = [name]
        if classes:
            words.append(f'class="{escape(classes)}"')
        for key, value in attributes.items():
            if value is not None:
                value = number(value) if isinstance(value, (int, float)) else escape(value)
                words.append(f'{key.rstrip("_").replace("_", "-")}="{value}"')
        self.parts.append(f"<{' '.join(words)}/>" if text is None
                          else f"<{' '.join(words)}>{escape(text)}</{name}>")

    def line(self, x1, y1, x2, y2, classes):
        self._add("line", classes, x1=x1, y1=y1, x2=x2, y2=y2)

    def rectangle(self, x, y, width, height, classes, radius=None, opacity=None):
        self._add("rect", classes, x=x, y=y, width=max(0, width), height=max(0, height), rx=radius,
                  fill_opacity=opacity)

    def path(self, points, classes):
        """Straight lines through `points`."""
        self._add("polyline", classes,
                  points=" ".join(f"{number(x)},{number(y)}" for x, y in points))

    def text(self, x, y, text, classes="", anchor="start", turn=None):
        """`y` is the base line; `turn` turns it counter-clockwise around (x, y), in degrees."""
        turned = None if turn is None else f"rotate({number(-turn)} {number(x)} {number(y)})"
        self._add("text", classes, text, x=x, y=y,
                  text_anchor=None if anchor == "start" else anchor, transform=turned)

    def marker(self, x, y, shape, classes, size=4.0):
        """One of MARKERS around (x, y)."""
        s = size
        if shape == "circle":
            self._add("circle", classes, cx=x, cy=y, r=s)
        elif shape == "ring":
            self._add("circle", classes + " stroked", cx=x, cy=y, r=s - 0.5)
        elif shape == "cross":
            self._add("path", classes + " stroked",
                      d=f"M{number(x - s)} {number(y - s)}L{number(x + s)} {number(y + s)}"
                        f"M{number(x - s)} {number(y + s)}L{number(x + s)} {number(y - s)}")
        elif shape == "plus":
            self._add("path", classes + " stroked",
                      d=f"M{number(x - s)} {number(y)}H{number(x + s)}"
                        f"M{number(x)} {number(y - s)}V{number(y + s)}")
        else:
            corners = {"square": ((-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)),
                       "up": ((0, -1.2), (1.1, .9), (-1.1, .9)),
                       "down": ((0, 1.2), (1.1, -.9), (-1.1, -.9)),
                       "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0))}[shape]
            self._add("polygon", classes, points=" ".join(
                f"{number(x + a * s)},{number(y + b * s)}" for a, b in corners))

    def render(self, classes="", style="", margin=None):
        """The SVG element. With `style` (CSS) and a `margin` it is a file of its own."""
        around = margin or 0
        size = [number(value) for value in (self.width + 2 * around, self.height + 2 * around)]
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{number(-around)} '
                f'{number(-around)} {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" '
                'role="img"')
        if classes:
            head += f' class="{escape(classes)}"'
        lines = [head + ">", f"<title>{escape(self.title)}</title>"]
        if self.description:
            lines.append(f"<desc>{escape(self.description)}</desc>")
        if style:
            lines.append(f"<style>{style}</style>")
        if margin is not None:
            lines.append(f'<rect class="surface" x="{number(-around)}" y="{number(-around)}" '
                         f'width="{size[0]}" height="{size[1]}"/>')
        return "\n".join(lines + self.parts + ["</svg>"]) + "\n"


MARKERS = ("circle", "square", "up", "down", "diamond", "cross", "plus", "ring")
