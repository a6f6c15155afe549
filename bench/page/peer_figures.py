"""peer_figures - the same work by other systems."""

import bars
import words
from figures import Figure, Section, unit_for

PEER_COLUMNS = (("view", "View: the address of current values, nothing copied"),
                ("pull", "Pull: all values, copied"),
                ("push", "Push: w −= g"),
                ("push+pull", "Push and pull"),
                ("push, 2 writers", "Push by two writers at once, each"),
                ("round of 2", "Round of two: both gradients in, both go on with the same values"))


def peers_section(peers, why_missing):
    text = ("The same work by what one would have used instead, each in its own process, "
            "verified, in the same run. Bars are medians; a thin line goes on to p99, or ends in an "
            "arrow where that is beyond the drawing. A view is compared with a view, a pull that "
            "copies with a get that copies. Shorter is better, but for training, where longer is. ! "
            "marks runs that spread by more than 20 %.")
    if peers is None:
        return Section("peers", "Beside other systems", text, [], missing=why_missing)
    figures = []
    for elements in sorted({elements for _, elements, _ in peers.latency}):
        for op, title in PEER_COLUMNS:
            made = latency_bars(peers, elements, op)
            if any(bar.value is not None for bar in made):
                figures.append(peer_figure(op, elements, title, made))
    for workers in sorted({workers for _, workers in peers.training}):
        made = training_bars(peers, workers)
        figures.append(Figure(f"peers-training-{workers}", lambda width, made=made, workers=workers:
                              bars.bar_chart(
                                  width, f"Training MNIST, {words.plural(workers, 'worker')}",
                                  "; ".join(f"{b.name}: {b.text}" for b in made),
                                  "steps/s of all workers (test accuracy)", made, words.count)))
    if not figures:
        return Section("peers", "Beside other systems", text, [],
                       missing="no system could be measured: " + "; ".join(
                           f"{name}: {reason}" for name, reason in
                           sorted({**peers.missing, **peers.failed}.items())))
    notes = []
    if peers.quick:
        notes.append("A quick run: each was measured once, so no spread is known; not for quoting.")
    if peers.interrupted:
        notes.append("The run was interrupted: what was not complete is not here.")
    notes += [f"Missing: {name}: {reason}." for name, reason in sorted(peers.missing.items())]
    notes += [f"Failed: {row}: {reason}." for row, reason in sorted(peers.failed.items())]
    return Section("peers", "Beside other systems", text, figures, note=" ".join(notes))


def peer_figure(op, elements, title, made):
    size = {79510: "318 KB", 1048576: "4 MiB"}.get(elements, f"{words.count(elements)} floats")
    name = f"peers-{op}-{elements}".replace(", ", "-").replace("+", "-").replace(" ", "-")
    top = bars.LONGEST_LINE * max(bar.value for bar in made if bar.value is not None)
    factor, unit = unit_for(top)
    return Figure(name, lambda width: bars.bar_chart(
        width, f"{title}, {size}", "; ".join(f"{b.name}: {b.text}" for b in made),
        f"{unit}, median and p99", made,
        lambda value: words.short(value * factor)))


def peer_key(row):
    """Our own bars stand out, each in the colour of its mode."""
    return row.removeprefix("passel ") if row.startswith("passel ") else "other"


def latency_bars(peers, elements, op):
    made = []
    for row, peer, ops in peers.latency_rows:
        cell = peers.latency.get((row, elements, op))
        if cell:
            p50, p99, spread = cell
            text = f"{words.duration(p50)} (p99 {words.duration(p99)}){noisy(spread)}"
            made.append(bars.Bar(row, p50, text, peer_key(row), p99))
        elif op in ops and (peer in peers.missing or row in peers.failed):
            made.append(bars.Bar(row, None, "not measured: see below"))
    return made


def training_bars(peers, workers):
    made = []
    for row, peer in peers.training_rows:
        cell = peers.training.get((row, workers))
        failed = any(what.startswith(f"{row}, {workers} ") for what in peers.failed)
        if cell:
            steps, accuracy, spread = cell
            text = words.grouped(steps) + ("" if accuracy is None else f" ({accuracy:.3f})")
            made.append(bars.Bar(row, steps, text + noisy(spread), peer_key(row)))
        elif peer in peers.missing or failed or "training" in peers.failed:
            made.append(bars.Bar(row, None, "not measured: see below"))
    return made


def noisy(spread):
    return " !" if spread > 0.20 else ""
