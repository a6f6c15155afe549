"""advice - which mode was fastest, a sentence for each number of workers, and what each guarantees.
"""

import style
import words

GUARANTEES = {
    "hogwild": "applies each gradient at once; two that meet in one block may lose some of its "
               "updates",
    "locked": "applies each gradient at once and loses nothing",
    "barrier": "applies one mean gradient a round, with the same bits whoever arrives first",
    "replicas": "takes the first gradients of a round and drops those that come late",
    "ssp": "is as hogwild, but lets nobody run far ahead",
}
LEAST_EFFECT = 0.03  # a smaller difference is none


def modes_at(results, workers):
    """The product's modes that trained with so many workers, fastest first."""
    found = [s for s in results.scaling if s.workers == workers and s.ratio is not None
             and style.kind_of(s.sharing) == "mode"]
    return sorted(found, key=lambda s: (-s.ratio, style.order_of(s.sharing)))


def sentences(results):
    """One for each number of workers above one, of the training; [] without training."""
    found = []
    for workers in sorted({s.workers for s in results.scaling if s.workers > 1}):
        modes = modes_at(results, workers)
        if not modes:
            continue
        best = modes[0]
        same = [m for m in modes[1:] if best.ratio - m.ratio <= noise(best, m)]
        start = f"With {workers} workers `{best.sharing}` trains fastest: "
        reach = f"{best.ratio:.2f} of what {workers} workers reach that share nothing"
        if same:
            names = ", ".join(f"`{m.sharing}` ({m.ratio:.2f})" for m in same)
            text = (f"{start}{reach}; {names} cannot be told apart from it by this run, so choose "
                    "by what they guarantee.")
        elif len(modes) == 1:
            text = f"With {workers} workers only `{best.sharing}` was measured: {reach}."
        else:
            text = f"{start}{reach}, `{modes[1].sharing}` follows with {modes[1].ratio:.2f}."
        found.append(text)
    return found


def noise(a, b):
    """The difference of two ratios below which nothing is said: half of what the runs of each
    spread over, added up."""
    return max(LEAST_EFFECT * max(a.ratio, b.ratio),
               ((a.spread or 0) * a.ratio + (b.spread or 0) * b.ratio) / 2)


def guarantees(results):
    """[(mode, half a sentence)] of the modes that appear."""
    names = {s.sharing for s in results.scaling} | {c.mode for c in results.cells}
    return [(name, GUARANTEES[name]) for name in sorted(names, key=style.order_of)
            if name in GUARANTEES]


def targets(results):
    """ "27 targets: 24 met, 2 missed, 1 not applicable" or "" without any."""
    rows = [row for row in results.rows if row.target]
    if not rows:
        return ""
    counts = []
    for verdict in ("met", "missed", "not applicable", "WRONG"):
        count = sum(row.verdict == verdict for row in rows)
        if count:
            counts.append(f"{count} {verdict}")
    return f"{words.plural(len(rows), 'target')}: {', '.join(counts)}"
