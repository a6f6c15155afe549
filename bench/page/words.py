"""words - numbers as people read them, and the order in which ways to share are listed."""

# The product's modes, then what one would write instead, then what they are compared with.
MODES = ("hogwild", "locked", "barrier", "replicas", "ssp")
SHARINGS = (*MODES, "naive", "atomic", "mutex", "private", "reference")


def order_of(sharing):
    """For sorting: as listed above, then what is not known, by name."""
    return (SHARINGS.index(sharing) if sharing in SHARINGS else len(SHARINGS), sharing)


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


def _scaled(value, digits, units):
    """`value` in the first of `units`, (limit, factor, text), in which it stays below the limit
    when it has been rounded."""
    for limit, factor, unit in units[:-1]:
        if abs(float(significant(value * factor, digits))) < limit * factor:
            return short(value * factor, digits) + unit
    return short(value * units[-1][1], digits) + units[-1][2]


def duration(us, digits=3):
    """A time given in microseconds: "850 ns", "9.48 µs", "1.2 ms", "3 s"."""
    return _scaled(us, digits, ((1, 1e3, " ns"), (1e3, 1, " µs"), (1e6, 1e-3, " ms"),
                                (0, 1e-6, " s")))


def count(value, digits=3):
    """A number of things: "16", "1 k", "79.5 k", "1.05 M"."""
    return _scaled(value, digits, ((1e3, 1, ""), (1e6, 1e-3, " k"), (1e9, 1e-6, " M"),
                                   (0, 1e-9, " G")))


def grouped(value):
    """A whole number with a comma every three digits."""
    return f"{int(value):,}"


def percent(share):
    """0.153 as "15 %"; below one per cent one digit more."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.01 else f"{100 * share:.1f} %"


def plural(number, word):
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def known(value, write=table_number):
    """"" of what was not measured."""
    return "" if value is None else write(value)


def listed(parts):
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
