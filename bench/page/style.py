"""style - colours and marks: who is who in every drawing, on light and on dark pages.

The eight colours stay apart for the three common kinds of colour blindness; where two come close
the marks differ, and every line and bar has its name beside it.
"""

# Key of a line -> (marker, kind): what sharing means in the order in which it is listed. "foil" and
# "limit" are drawn thinner and broken: they are what the others are compared with.
SERIES = {
    "hogwild": ("circle", "mode"),
    "locked": ("square", "mode"),
    "barrier": ("up", "mode"),
    "replicas": ("diamond", "mode"),
    "ssp": ("down", "mode"),
    "naive": ("cross", "foil"),
    "atomic": ("plus", "foil"),
    "mutex": ("ring", "foil"),
    "private": (None, "limit"),
    "limit": (None, "limit"),
}
PARTS = ("gather", "forward", "backward", "update", "wait", "other")

_LIGHT = {
    "surface": "#ffffff", "page": "#f6f6f4", "ink": "#1b1c1e", "muted": "#5c6066",
    "rule": "#d9dadc", "grid": "#e9eaeb", "accent": "#0b67a8", "good": "#0a6b47",
    "bad": "#a33a00", "warn-page": "#fff4dc", "on-part": "#1b1c1e",
    "hogwild": "#0b67a8", "locked": "#cf5200", "barrier": "#00835f", "replicas": "#a3478a",
    "ssp": "#957000", "naive": "#6a6d72", "atomic": "#3d97cc", "mutex": "#7d5334",
    "limit": "#44474c", "other": "#9a9da2",
    "gather": "#c9d3dc", "forward": "#9cc9ea", "backward": "#5ba6d9", "update": "#f0a35e",
    "wait": "#e6d34f",
}
_DARK = {
    "surface": "#1c1d20", "page": "#141517", "ink": "#e9eaec", "muted": "#a5a9b0",
    "rule": "#3c3f45", "grid": "#2c2e33", "accent": "#58abe8", "good": "#4fcb9d",
    "bad": "#ff9a66", "warn-page": "#3a3116", "on-part": "#141517",
    "hogwild": "#58abe8", "locked": "#ff8b4a", "barrier": "#2fbf93", "replicas": "#e09ac9",
    "ssp": "#d9b53c", "naive": "#a0a3a8", "atomic": "#8fd0f7", "mutex": "#c59d7c",
    "limit": "#c4c7cc", "other": "#74777d",
    "gather": "#aab6c1", "forward": "#9cc9ea", "backward": "#5ba6d9", "update": "#f0a35e",
    "wait": "#e6d34f",
}


def _variables(colours):
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


VARIABLES = (f":root{{{_variables(_LIGHT)}}}"
             f"@media (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}")

# Of every drawing, in the page and in files of their own.
DRAWING = (
    "svg{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "svg text{fill:var(--ink)}"
    "svg text.muted{fill:var(--muted)}"
    "svg text.title{font-weight:600;font-size:13px}"
    "svg text.on-part{fill:var(--on-part)}"
    "svg .surface{fill:var(--surface)}"
    "svg .grid{stroke:var(--grid)}"
    "svg .axis{stroke:var(--rule)}"
    "svg polyline.leader{stroke:var(--muted);stroke-width:.7}"
    "svg .gap{stroke:var(--surface);stroke-width:1}"
    "svg polyline{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;"
    "stroke-linecap:round}"
    "svg polyline.foil{stroke-width:1.5;stroke-dasharray:2 3}"
    "svg polyline.limit{stroke-width:1.5;stroke-dasharray:7 4}"
    "svg polyline.open{stroke-dasharray:1 4}"
    "svg .fill{fill:var(--c)}"
    "svg line.whisker,svg polyline.whisker{stroke:var(--muted);stroke-width:1.5}"
    "svg .stroked{fill:none;stroke:var(--c);stroke-width:2}"
) + "".join(f"svg .s-{name}{{--c:var(--{name})}}"
            for name in (*SERIES, *PARTS, "accent") if name != "private") + \
    "svg .s-private{--c:var(--limit)}"


def series_class(key):
    return f"s-{key}" if key in SERIES or key in PARTS else "s-other"


def kind_of(key):
    return SERIES.get(key, (None, "foil"))[1]


def marker_of(key):
    return SERIES.get(key, ("circle", "foil"))[0]


def order_of(key):
    """For sorting: the modes as listed above, then what is not known, by name."""
    return (list(SERIES).index(key) if key in SERIES else len(SERIES), key)
