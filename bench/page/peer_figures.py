"""peer_figures - pictures of the same work by other systems."""

import plots
import words
from figures import Section, picture
from plots import Bar

PEER_COLUMNS = {"view": "View: the address of current values, nothing copied",
                "pull": "Pull: all values, copied", "push": "Push: w −= g",
                "push+pull": "Push and pull",
                "push, 2 writers": "Push by two writers at once, each",
                "round of 2": "Round of two: both gradients in, both go on with the same values"}


def section(peers, why_missing):
    found = Section(
        "peers", "Beside other systems",
        "The same work by what one would have used instead, each in its own process, verified, in "
        "the same run. Bars are medians; a thin line goes on to p99, or ends in an arrow where "
        "that is beyond the drawing. A view is compared with a view, a pull that copies with a get "
        "that copies. Shorter is better, but for training, where longer is. ! marks runs that "
        "spread by more than 20 %.", missing=why_missing if peers is None else "")
    if peers is None:
        return found
    for elements in sorted({elements for _, elements, _ in peers.latencies}):
        size = {79510: "318 KB", 1048576: "4 MiB"}.get(elements, f"{words.count(elements)} floats")
        for op, title in PEER_COLUMNS.items():
            made = latency_bars(peers, elements, op)
            if any(bar.value is not None for bar in made):
                found.pictures.append(picture(
                    ("peers", op, elements), f"{title}, {size}", plots.bars, "median and p99", made,
                    words.duration))
    for workers in sorted({workers for _, workers in peers.speeds}):
        found.pictures.append(picture(
            ("peers-training", workers), f"Training MNIST, {words.plural(workers, 'worker')}",
            plots.bars, "steps/s of all workers (test accuracy)", training_bars(peers, workers),
            words.count))
    notes = ["A quick run: each was measured once, so no spread is known; not for quoting."
             ] * bool(peers.quick)
    notes += ["The run was interrupted: what was not complete is not here."] * bool(
        peers.interrupted)
    notes += [f"Missing: {name}: {reason}." for name, reason in sorted(peers.missing.items())]
    notes += [f"Failed: {row}: {reason}." for row, reason in sorted(peers.failed.items())]
    found.note = " ".join(notes)
    if not found.pictures:
        found.missing = f"no system could be measured. {found.note}"
    return found


def peer_key(row):
    """Our own bars stand out, each in the colour of its mode."""
    return row.removeprefix("passel ") if row.startswith("passel ") else "other"


def noisy(spread):
    return " !" if spread > 0.20 else ""


def latency_bars(peers, elements, op):
    made = []
    for r in peers.latency_rows:
        if (r.row, elements, op) in peers.latencies:
            p50, p99, spread = peers.latencies[r.row, elements, op]
            text = f"{words.duration(p50)} (p99 {words.duration(p99)}){noisy(spread)}"
            made.append(Bar(r.row, p50, text, peer_key(r.row), p99))
        elif op in r.ops and (r.peer in peers.missing or r.row in peers.failed):
            made.append(Bar(r.row, None, "not measured: see below"))
    return made


def training_bars(peers, workers):
    made = []
    for r in peers.training_rows:
        failed = any(what.startswith(f"{r.row}, {workers} ") for what in peers.failed)
        if (r.row, workers) in peers.speeds:
            steps, accuracy, spread = peers.speeds[r.row, workers]
            text = words.grouped(steps) + ("" if accuracy is None else f" ({accuracy:.3f})")
            made.append(Bar(r.row, steps, text + noisy(spread), peer_key(r.row)))
        elif r.peer in peers.missing or failed or "training" in peers.failed:
            made.append(Bar(r.row, None, "not measured: see below"))
    return made
