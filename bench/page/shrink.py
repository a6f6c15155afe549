"""shrink - results as a file that is small enough to be kept: the same form, fewer digits."""

import json

DIGITS = 5


def rounded(value):
    """`value`, and all that is in it, with floats of so many significant digits."""
    if isinstance(value, float):
        number = float(f"{value:.{DIGITS}g}")
        return int(number) if number.is_integer() else number
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: curve(one) if name == "curve" else rounded(one)
                for name, one in value.items()}
    return value


def curve(points):
    """Of a percentile only the distance from 1 matters: it keeps its digits."""
    return [[float(f"{q:.12g}"), rounded(us)] for q, us in points]


def text_of(path):
    """The JSON of the file `path`: a line for each entry of a list. REQUIRES: it has been read by
    results.py without complaint."""
    with open(path, encoding="utf-8") as file:
        found = rounded(json.load(file))
    parts = []
    for name, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join(line(one) for one in value) + "\n]"
        else:
            text = line(value)
        parts.append(f"{json.dumps(name)}: {text}")
    return "{" + ",\n".join(parts) + "}\n"


def line(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
