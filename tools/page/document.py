"""document - one HTML file with tables and drawings in it, which needs nothing else: how it looks, how
it is written, and how the JSON is read that it is made of.
"""

import html
import json
import os
import re
import sys


class BadFile(Exception):
    """One sentence: the file, what is wrong with it, what to do."""


class Entry(dict):
    """An object of a file; a field that is not there is None."""
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


def load(path, what, form, command):
    """The object in a file that `command` has written, with a list `what`, of the format `form`."""
    try:
        with open(path, encoding="utf-8") as file:
            # NaN and the like are no JSON: int() refuses their names.
            found = json.load(file, object_hook=Entry, parse_constant=int)
    except OSError as error:
        raise BadFile(f"{path} cannot be read ({error.strerror}): name a file written by "
                      f"{command}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON: name a file written by {command}") from error
    if not isinstance(found, Entry) or not isinstance(found.get(what), list):
        raise BadFile(f"{path} has no list '{what}': name a file written by {command}")
    if found.format != form:
        raise BadFile(f"{path} has format {found.format}, this program reads {form}: write the "
                      f"file again with {command} of the same version")
    return found


def write(path, text):
    """Renamed into place: a reader never sees half of it, not even after a power cut."""
    partial_path = f"{path}.{os.getpid()}.partial"
    try:
        # What the name of a file had in bytes that are no text is a question mark.
        with open(partial_path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial_path, path)
    except OSError:
        if os.path.exists(partial_path):
            os.remove(partial_path)
        raise


# Drawings are made for white paper. On a dark screen they are turned over, hue for hue; white becomes
# the background then.
STYLE = """
:root{color-scheme:light dark;--line:#d9dadc;--soft:#f4f5f6;--warn:#fff4dc}
body{margin:0 auto;max-width:1120px;padding:16px;font:15px/1.5 system-ui,sans-serif;background:#fff;color:#000}
h1,h2,p,pre{overflow-wrap:anywhere}td{overflow-wrap:break-word;max-width:480px}
.warning{background:var(--warn);padding:8px 12px}
figure{margin:0;overflow-x:auto}
svg{max-width:100%;min-width:440px;height:auto}
.table{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid var(--line);vertical-align:top}
th{white-space:nowrap}
td:first-child{min-width:12em}td:last-child{min-width:7em}
td.number,.number{text-align:right;white-space:nowrap;min-width:0}
@media screen and (prefers-color-scheme:dark){
:root{--line:#3c3f43;--soft:#1e2022;--warn:#3d3112}
body{background:#121212;color:#ededed}
svg{filter:invert(.93) hue-rotate(180deg)}
}
@media print{
body{max-width:none;padding:0;font-size:11px}
figure,tr{break-inside:avoid}h2{break-after:avoid}
svg{min-width:0}.table{max-height:none!important;overflow:visible}
}
"""


def clean(words):
    """Without what no XML may have."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", str(words))


def text(words):
    """As HTML has it."""
    return html.escape(clean(words))


# Of a table the heads that end in "|" are of columns of words; those of the others are of numbers.


def markdown(heads, rows):
    lines = [[head.rstrip("|") for head in heads],
             ["---" if head.endswith("|") else "---:" for head in heads],
             *[[str(cell).replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines if rows)


def table(heads, rows):
    kinds = ["" if head.endswith("|") else ' class="number"' for head in heads]
    lines = [[f"<th{kind}>{text(head.rstrip('|'))}</th>" for kind, head in zip(kinds, heads)]]
    lines += [[f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(kinds, row)] for row in rows]
    body = "\n".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f'<div class="table" tabindex="0"><table>\n{body}\n</table></div>'


def page(title, summary, warnings, parts, style=""):
    """The whole file. `summary` and `warnings` are texts; `parts` are HTML and follow one another."""
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{text(title)}: passel</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>",
        f"<h1>{text(title)}</h1>\n<p>{text(summary)}</p>",
        *[f'<p class="warning">{text(warning)}</p>' for warning in warnings], *parts,
        "</body>\n</html>"]) + "\n"


def run(name, make, advice):
    """The exit code of a program `name` that does nothing but `make`() a page. `advice` ends the
    sentence about a file that cannot be written."""
    try:
        make()
    except BadFile as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {error.filename2 or error.filename} cannot be written: {error.strerror}; "
              f"{advice}", file=sys.stderr)
        return 1
    return 0
