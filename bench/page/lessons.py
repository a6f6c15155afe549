"""lessons - what a run says about an update, in sentences made of its own figures.

Each function returns its sentences, none where the run did not measure what they are about. Nothing
is concluded that the figures beside it do not show.
"""

import figures
import words
from words import listed, order_of

LEAST_EFFECT = 0.03       # of two shares of private compute: a smaller difference is none
MUCH_LOAD = 0.5           # cores kept busy by others, above which outliers are theirs
NEAR = 1.5                # pairs of cores whose lines cost less than this apart are equally near


def sentences(results):
    return [sentence for said in (fastest, sharing, losses, placement, open_loop, near_cores)
            for sentence in said(results)]


def closed(results, **wanted):
    """Cells of a closed loop whose fields are as wanted."""
    return [cell for cell in figures.closed(results)
            if all(cell[name] == value for name, value in wanted.items())]


def usual(results):
    """Pushes at the usual size, by the optimizer that most of them have, on 4 KiB pages, one core
    each."""
    cells = closed(results, elements=figures.USUAL_SIZE, pages="4k", placement="own", op="push")
    optimizers = sorted(cell.optimizer for cell in cells)
    return [cell for cell in cells if cell.optimizer == max(optimizers, key=optimizers.count)]


def described(cell):
    return (f"{words.plural(cell.writers, 'writer')} in `{cell.mode}`, {cell.optimizer}, "
            f"{words.count(cell.elements)} parameters")


def noise(a, b):
    """The difference of two ratios below which nothing is said: half of what the runs of each
    spread over, added up."""
    return max(LEAST_EFFECT * max(a.ratio, b.ratio),
               ((a.spread or 0) * a.ratio + (b.spread or 0) * b.ratio) / 2)


def fastest(results):
    """Which of the product's modes trains fastest, for each number of workers above one."""
    for workers in sorted({s.workers for s in results.scaling if s.workers > 1}):
        modes = sorted((s for s in results.scaling if s.workers == workers
                        and s.ratio is not None and s.sharing in words.MODES),
                       key=lambda s: (-s.ratio, order_of(s.sharing)))
        if not modes:
            continue
        best = modes[0]
        start = f"With {workers} workers `{best.sharing}` trains fastest: "
        reach = f"{best.ratio:.2f} of what {workers} workers reach that share nothing"
        same = [f"`{m.sharing}` ({m.ratio:.2f})" for m in modes[1:]
                if best.ratio - m.ratio <= noise(best, m)]
        if same:
            yield (f"{start}{reach}; {', '.join(same)} cannot be told apart from it by this run, "
                   "so choose by what they guarantee.")
        elif len(modes) == 1:
            yield f"With {workers} workers only `{best.sharing}` was measured: {reach}."
        else:
            yield f"{start}{reach}, `{modes[1].sharing}` follows with {modes[1].ratio:.2f}."


def sharing(results):
    """The multiple of the reference, writer by writer."""
    parts = []
    cells = usual(results)
    for mode in ("hogwild", "locked", "ssp"):
        row = sorted((c for c in cells if c.mode == mode and figures.multiple(c)),
                     key=lambda c: c.writers)
        if len(row) > 1:
            steps = [f"{figures.multiple(c):.2f}× with {c.writers}" for c in row]
            parts.append(f"`{mode}` {listed(steps)}")
    if parts:
        yield (f"What sharing costs where writers only push ({words.grouped(figures.USUAL_SIZE)} "
               f"parameters, {cells[0].optimizer}, against the bare loops): {'; '.join(parts)}.")


def lost(cell):
    """Of all updates of elements; "" where they were not counted."""
    if cell.lost_updates is None or not cell.pushes:
        return ""
    if cell.lost_updates == 0:
        return "none"
    return f"{words.short(100 * cell.lost_updates / (cell.pushes * cell.elements), 2)} %"


def losses(results):
    """Of the most writers."""
    cells = [c for c in usual(results) if lost(c)]
    most = max((c.writers for c in cells), default=1)
    cells = sorted((c for c in cells if c.writers == most), key=lambda c: order_of(c.mode))
    if most > 1:
        yield (f"Updates of elements lost by {cells[0].writers} writers that push all the time: "
               f"{listed([f'`{c.mode}` {lost(c)}' for c in cells])}.")


def placement(results):
    """By updates a second: on one core each update is fast, but few are made."""
    groups = figures.panels(
        [c for c in closed(results) if c.mode in words.MODES and c.updates_per_second],
        "placement", least=lambda group: len(group) > 1 < group[0].writers)
    for group in sorted(groups, key=lambda g: order_of(g[0].mode))[:1]:
        parts = [f"{figures.where(c)} {words.count(c.updates_per_second)} updates a second "
                 f"(p99 {words.duration(c.p99)})"
                 for c in sorted(group, key=lambda c: -c.updates_per_second)]
        yield f"Placement of {described(group[0])}: {listed(parts)}."


def open_loop(results):
    groups = figures.panels(results.measured, "loop", "rate",
                            least=lambda group: len({c.loop for c in group}) > 1)
    if groups:
        group = min(groups, key=lambda g: order_of(g[0].mode))
        once = next(c for c in group if c.loop == "closed")
        due = min((c for c in group if c.loop != "closed"), key=lambda c: c.rate)
        yield (f"What a closed loop hides, {described(once)}: p99 {words.duration(once.p99)}, but "
               f"{words.duration(due.p99)} from the moment at which each was due, at "
               f"{words.count(due.rate)} a second for each writer.")


def near_cores(results):
    """A pair takes the better of its two directions: the other one may have been disturbed."""
    matrix = (results.line_transfer or {}).get("round_trip_ns") or []
    costs = [min(pair) for i, row in enumerate(matrix) for j in range(i)
             if (pair := [v for v in (row[j], matrix[j][i]) if v is not None and v > 0])]
    if len(costs) < 2:
        return
    low, high = min(costs), max(costs)
    text = (f"One line goes from core to core and back in {words.short(low)} to "
            f"{words.short(high)} ns: ")
    if high < NEAR * low:
        yield text + "all cores are about equally near."
    elif ((results.load or {}).get("other_cores") or 0) > MUCH_LOAD:
        yield text + "other programs ran meanwhile, so that nothing follows from the difference."
    else:
        yield (text + "some cores are nearer than others, and workers of one job belong on near "
               "ones.")
