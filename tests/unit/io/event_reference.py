#!/usr/bin/env python3
"""Reads event files with TensorBoard's own reader.

    event_reference.py check          exit 0 if the module is there, 77 if not
    event_reference.py verify FOLDER  what event_reference_test.cc wrote is found, and nothing else
    event_reference.py cut FILE       a file that is cut anywhere gives the events before the cut
    event_reference.py show FOLDER    what there is, as JSON
"""
import json
import math
import os
import sys

try:
    from google.protobuf import text_format
    from tensorboard.backend.event_processing import event_accumulator, event_file_loader
    from tensorboard.compat.proto import event_pb2, graph_pb2
except ImportError as error:
    print(error)
    sys.exit(77)

ALL = {name: 0 for name in (event_accumulator.SCALARS, event_accumulator.HISTOGRAMS,
                            event_accumulator.TENSORS)}


def load(folder):
    return event_accumulator.EventAccumulator(folder, size_guidance=ALL).Reload()


def texts(accumulator):
    """Tags of the texts, with their text."""
    found = accumulator.PluginTagToContent("text")
    return {tag: accumulator.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found}


def nodes(graph):
    return {node.name: node for node in graph.node}


def show(folder):
    accumulator = load(folder)
    tags = accumulator.Tags()
    graph = nodes(accumulator.Graph()) if tags["graph"] else {}
    with open(os.path.join(folder, "graph.pbtxt"), encoding="utf-8") as file:
        text = nodes(text_format.Parse(file.read(), graph_pb2.GraphDef()))
    assert set(text) == set(graph), (set(text), set(graph))
    for name, node in graph.items():
        assert all(i in graph for i in node.input), node
        assert list(node.input) == list(text[name].input) and node.device == text[name].device
    print(json.dumps({
        "scalars": {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)]
                    for tag in tags["scalars"]},
        "histograms": {tag: [(e.step, e.histogram_value.num) for e in accumulator.Histograms(tag)]
                       for tag in tags["histograms"]},
        "texts": texts(accumulator),
        "nodes": {name: [node.op, node.device] for name, node in graph.items()}}))


def verify(folder):
    accumulator = load(folder)
    tags = accumulator.Tags()
    assert tags["scalars"] == ["loss", "rate/sec"], tags
    # The second life began at step 2: what the first one wrote of step 2 and later is forgotten.
    loss = accumulator.Scalars("loss")
    assert [(e.step, e.value) for e in loss[:3]] == [(1, 0.5), (2, -0.25), (3, 8.0)], loss
    assert loss[3].step == 4 and math.isnan(loss[3].value), loss
    assert loss[0].wall_time == 1700000000.75, loss
    assert tags["histograms"] == ["hid_w"], tags
    (event,) = accumulator.Histograms("hid_w")
    histogram = event.histogram_value
    assert (histogram.num, histogram.min, histogram.max, histogram.sum) == (4, -2, 1, 0), event
    assert sum(histogram.bucket) == 4 and len(histogram.bucket) == len(histogram.bucket_limit)
    assert texts(accumulator) == {"model": "| a |\n|---|\n| \u00e9 |"}
    graph = nodes(accumulator.Graph())
    assert set(graph) == {"hid_w", "hid/MatMul"}
    assert list(graph["hid/MatMul"].input) == ["hid_w"]
    assert graph["hid_w"].device == "/job:ps/task:1"
    assert [d.size for d in graph["hid_w"].attr["shape"].shape.dim] == [784, 100]


def cut(path):
    with open(path, "rb") as file:
        whole = file.read()
    ends, at = [], 0
    while at < len(whole):
        at += 16 + int.from_bytes(whole[at:at + 8], "little")
        ends.append(at)
    assert ends[-1] == len(whole) and len(ends) > 3
    short = path + ".cut"
    for size in range(len(whole)):
        with open(short, "wb") as file:
            file.write(whole[:size])
        events = list(event_file_loader.LegacyEventFileLoader(short).Load())
        assert len(events) == sum(end <= size for end in ends), size
        assert all(isinstance(event, event_pb2.Event) for event in events)
    os.remove(short)


if __name__ == "__main__":
    if sys.argv[1] != "check":
        {"verify": verify, "cut": cut, "show": show}[sys.argv[1]](sys.argv[2])
