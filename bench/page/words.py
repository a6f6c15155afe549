"""words - numbers as people read them, and how wide a text is."""


def significant(value, digits=3):
    """`value` with so many significant digits and no exponent: 0.0123, 9.48, 1060."""
    if value == 0:
        return "0"
    size, decimals = abs(value), digits - 1
    while size >= 10 and decimals > 0:
        size /= 10
        decimals -= 1
    while size < 1 and decimals < 9:
        size *= 10
        decimals += 1
    return f"{value:.{decimals}f}"


def table_number(value):
    """As the terminal's table prints it: four significant digits from 1 on, no exponent."""
    size = abs(value)
    return f"{value:.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3}f}"


def short(value, digits=3):
    """At most so many significant digits, no zeros at the end: 1, 2.5, 351."""
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(us, digits=3):
    """A time given in microseconds: "850 ns", "9.48 µs", "1.2 ms", "3 s"."""
    for limit, factor, unit in ((1, 1e3, "ns"), (1e3, 1, "µs"), (1e6, 1e-3, "ms")):
        # What would be rounded up to the next unit is written in that.
        if abs(float(significant(us * factor, digits))) < limit * factor:
            return f"{short(us * factor, digits)} {unit}"
    return f"{short(us * 1e-6, digits)} s"


def count(value, digits=3):
    """A number of things: "16", "1 k", "79.5 k", "1.05 M"."""
    for limit, factor, unit in ((1e3, 1, ""), (1e6, 1e-3, " k"), (1e9, 1e-6, " M")):
        if abs(float(significant(value * factor, digits))) < limit * factor:
            return short(value * factor, digits) + unit
    return f"{short(value * 1e-9, digits)} G"


def grouped(value):
    """A whole number with a comma every three digits."""
    return f"{int(value):,}"


def percent(share):
    """0.153 as "15 %"; below one per cent one digit more."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.01 else f"{100 * share:.1f} %"


def plural(number, word):
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# Widths in thousandths of the font size, of DejaVu Sans, the widest of the usual sans-serif fonts:
# what fits in it fits everywhere.
_WIDTHS = {}
for _characters, _width in (("il|j'!.,:;", 320), ("frtI()[]-/ ", 400), ("mMW%", 960), ("w@", 820),
                            ("ABCDEFGHJKLNOPQRSTUVXYZ&", 720), ("≤≥×+=<>~–→", 838)):
    for _character in _characters:
        _WIDTHS[_character] = _width
_OTHER = 620


def width(text, size):
    """Upper bound of the width of `text` in pixels, `size` being the size of the font."""
    return sum(_WIDTHS.get(character, _OTHER) for character in text) * size / 1000


def wrap(text, size, room):
    """Lines of whole words, none wider than `room` pixels unless a single word is."""
    lines = []
    for word in text.split():
        if lines and width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
