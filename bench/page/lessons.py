"""lessons - what a run says about an update, in sentences made of its own figures.

Each function returns one sentence, or "" where the run did not measure what it is about. Nothing is
concluded that the figures beside it do not show.
"""

import figures
import style
import words

LEAST_DIFFERENCE = 1.05   # ratios below are called the same
MUCH_LOAD = 0.5           # cores kept busy by others, above which outliers are theirs
NEAR = 1.5                # pairs of cores whose lines cost less than this apart are equally near


def sentences(results):
    found = [fixed_cost(results), sharing(results), foils(results), losses(results),
             largest(results), placement(results), pages(results), open_loop(results),
             near_cores(results), training(results), convoy(results)]
    return [sentence for sentence in found if sentence]


def closed(results, **wanted):
    """Cells of a closed loop whose attributes are as wanted."""
    return [cell for cell in results.measured() if cell.loop == "closed"
            and all(getattr(cell, name) == value for name, value in wanted.items())]


def usual(results, **wanted):
    """The same at the usual size, by the optimizer that most of them have, on 4 KiB pages, one core
    each."""
    cells = closed(results, elements=figures.USUAL_SIZE, pages="4k", placement="own", **wanted)
    if not cells:
        return []
    optimizers = [cell.optimizer for cell in cells]
    most = max(sorted(set(optimizers)), key=optimizers.count)
    return [cell for cell in cells if cell.optimizer == most]


def listed(parts):
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def fixed_cost(results):
    """What a call costs beside its arithmetic: the smallest array, the fewest writers."""
    cells = [c for c in closed(results, op="push", pages="4k") if style.kind_of(c.mode) == "mode"]
    if not cells or min(c.elements for c in cells) > 1000:
        return ""
    fewest = min(cells, key=lambda c: (c.elements, c.writers, style.order_of(c.mode)))
    cells = [c for c in cells if (c.elements, c.writers, c.optimizer, c.placement) == (
        fewest.elements, fewest.writers, fewest.optimizer, fewest.placement)]
    parts = [f"{words.duration(c.p50)} in `{c.mode}`"
             for c in sorted(cells, key=lambda c: style.order_of(c.mode))]
    return (f"What a call costs beside its arithmetic: a push of {fewest.elements} parameters by "
            f"{words.plural(fewest.writers, 'writer')} takes {listed(parts)}.")


def sharing(results):
    """The multiple of the reference, writer by writer."""
    parts = []
    cells = usual(results, op="push")
    for mode in ("hogwild", "locked", "ssp"):
        row = sorted((c for c in cells if c.mode == mode and figures.multiple(c)),
                     key=lambda c: c.writers)
        if len(row) > 1:
            steps = [f"{figures.multiple(c):.2f}× with {c.writers}" for c in row]
            parts.append(f"`{mode}` {listed(steps)}")
    if not parts:
        return ""
    return (f"What sharing costs where writers only push ({words.grouped(figures.USUAL_SIZE)} "
            f"parameters, {cells[0].optimizer}, against the bare loops): {'; '.join(parts)}.")


def most_writers(cells):
    """Those with the most writers, if more than one writes."""
    most = max((c.writers for c in cells), default=1)
    return [c for c in cells if c.writers == most] if most > 1 else []


def foils(results):
    """By updates a second: an unfair lock has a good median, since whoever has it keeps it."""
    cells = [c for c in most_writers(usual(results, op="push")) if c.share]
    shares = {c.mode: c.share for c in cells}
    said = (("naive", "a sweep without claims"), ("atomic", "relaxed atomics element by element"),
            ("mutex", "one lock around the variable"))
    others = [f"{name} {words.short(shares[mode], 2)}" for mode, name in said if mode in shares]
    ours = [f"`{mode}` {words.short(shares[mode], 2)}" for mode in ("hogwild", "locked")
            if mode in shares]
    if not others or not ours:
        return ""
    return (f"Updates a second of {cells[0].writers} writers that push all the time, as a share of "
            f"as many bare loops: {listed(ours)}; what one would write instead: {listed(others)}.")


def losses(results):
    """Of the updates of elements, counted exactly."""
    cells = [c for c in most_writers(usual(results, op="push")) if c.lost is not None and c.pushes]
    if not cells:
        return ""
    parts = [f"`{c.mode}` {figures.lost(c)}"
             for c in sorted(cells, key=lambda c: style.order_of(c.mode))]
    return f"Updates of elements lost by {cells[0].writers} writers that push all the time: " \
           f"{listed(parts)}."


def largest(results):
    """Beyond the caches."""
    cells = [c for c in closed(results, op="push", pages="4k", placement="own")
             if style.kind_of(c.mode) == "mode" and figures.multiple(c)]
    size = max((c.elements for c in cells), default=0)
    if size <= 4 * figures.USUAL_SIZE:
        return ""
    cells = [c for c in cells if c.elements == size]
    first = min(cells, key=lambda c: (style.order_of(c.mode), c.optimizer))
    row = sorted((c for c in cells if (c.mode, c.optimizer) == (first.mode, first.optimizer)),
                 key=lambda c: c.writers)
    parts = [f"{figures.multiple(c):.2f}× with {words.plural(c.writers, 'writer')}" for c in row]
    return (f"At {words.count(size)} parameters ({first.optimizer}), far beyond the caches of a "
            f"core, `{first.mode}` takes, against the bare loops, {listed(parts)}.")


def variants(results, name):
    """Groups that differ in `name` alone, of two writers or more if there are; modes first."""
    found = figures.panels(
        [c for c in closed(results) if style.kind_of(c.mode) == "mode"],
        lambda c: c.key(name, "loop", "rate"),
        lambda group: len({getattr(c, name) for c in group}) > 1)
    return sorted(found, key=lambda g: (g[0].writers < 2, style.order_of(g[0].mode)))


def placement(results):
    """By updates a second: on one core each update is fast, but few are made."""
    groups = [group for group in variants(results, "placement")
              if all(cell.updates_per_second for cell in group)]
    if not groups:
        return ""
    group = sorted(groups[0], key=lambda c: -c.updates_per_second)
    parts = [f"{figures.where(c)} {words.count(c.updates_per_second)} updates a second "
             f"(p99 {words.duration(c.p99)})" for c in group]
    return f"Placement of {described(group[0])}: {listed(parts)}."


def described(cell):
    return (f"{words.plural(cell.writers, 'writer')} in `{cell.mode}`, {cell.optimizer}, "
            f"{words.count(cell.elements)} parameters")


def pages(results):
    groups = variants(results, "pages")
    if not groups:
        refused = [c for c in results.cells if c.pages == "huge" and c.why_not]
        if not refused:
            return ""
        return f"Huge pages were not to be had: {refused[0].why_not.rstrip('.')}."
    group = sorted(groups[0], key=lambda c: c.pages)
    parts = [f"{c.pages} {words.duration(c.p50)}" for c in group]
    ratio = max(c.p50 for c in group) / min(c.p50 for c in group)
    same = " (no difference to speak of)" if ratio < LEAST_DIFFERENCE else ""
    return f"Pages, {described(group[0])}: {listed(parts)}{same}."


def open_loop(results):
    groups = figures.panels(results.measured(), lambda c: c.key("loop", "rate"),
                            lambda group: len({c.loop for c in group}) > 1)
    if not groups:
        return ""
    group = min(groups, key=lambda g: style.order_of(g[0].mode))
    once = next(c for c in group if c.loop == "closed")
    due = min((c for c in group if c.loop != "closed"), key=lambda c: c.rate)
    return (f"What a closed loop hides, {described(once)}: p99 {words.duration(once.p99)}, but "
            f"{words.duration(due.p99)} from the moment at which each was due, at "
            f"{words.count(due.rate)} a second for each writer.")


def near_cores(results):
    """A pair takes the better of its two directions: the other one may have been disturbed."""
    if results.lines is None or not results.lines.round_trip:
        return ""
    matrix = results.lines.round_trip
    costs = [min(pair) for i, row in enumerate(matrix) for j in range(i)
             if (pair := [v for v in (row[j], matrix[j][i]) if v is not None and v > 0])]
    if len(costs) < 2:
        return ""
    low, high = min(costs), max(costs)
    text = (f"One line goes from core to core and back in {words.short(low)} to "
            f"{words.short(high)} ns: ")
    if high < NEAR * low:
        return text + "all cores are about equally near."
    if (results.other_cores or 0) > MUCH_LOAD:
        return text + "other programs ran meanwhile, so that nothing follows from the difference."
    return text + "some cores are nearer than others, and workers of one job belong on near ones."


def training(results):
    """Of the splits with the most workers: what the update and waiting take of a step."""
    splits = [s for s in results.splits if s.total > 0]
    most = max((s.workers for s in splits), default=0)
    parts = []
    splits = [s for s in splits if s.workers == most]
    for s in sorted(splits, key=lambda s: style.order_of(s.sharing)):
        parts_of = dict(s.parts)
        share = (parts_of["update"] + parts_of["wait"]) / s.total
        parts.append(f"`{s.sharing}` {words.percent(share)}")
    if not parts:
        return ""
    return f"Of a training step of {words.plural(most, 'worker')} updating and waiting take: " \
           f"{listed(parts)}."


CONVOY = 1.2  # times the naive sweep: from there on claims are worth their cost in speed alone


def convoy(results):
    """Training against the naive sweep, where all workers fall into step and fight for the same
    lines; where they do not, what the update of both takes shows it."""
    parts, best = [], 0.0
    for workers in sorted({s.workers for s in results.scaling if s.workers > 1}):
        ratios = {s.sharing: s.ratio for s in results.scaling if s.workers == workers and s.ratio}
        if "naive" not in ratios:
            continue
        times = {mode: ratios[mode] / ratios["naive"] for mode in ("hogwild", "locked")
                 if mode in ratios}
        if times:
            best = max(best, *times.values())
            parts.append(", ".join(f"`{mode}` {value:.2f}×" for mode, value in times.items())
                         + f" with {workers} workers")
    if not parts:
        return ""
    text = f"Training speed against the naive sweep: {'; '.join(parts)}"
    if best >= CONVOY:
        return text + "."
    update = {s.sharing: dict(s.parts)["update"] for s in results.splits
              if s.workers == max(t.workers for t in results.splits)}
    told = [f"{sharing} {words.duration(update[sharing])}"
            for sharing in ("naive", "hogwild", "private") if sharing in update]
    if "naive" in update:
        text += f"; it forms no convoy that claims could break here (update of a step: {listed(told)})"
    return text + "."
