"""What is timed of a candidate, on the CPU: the worker that peers.py is, with graphs that are recorded operator by operator and
replayed on the same memory, as a GPU does; time is the number of matrix products. Started by candidate.rs with peers.py and cases:
FILE.py:FUNCTION:SETS:CONTENTS:LAUNCHES, of files beside this one. Prints a line for each: "right" if what was timed wrote what is right,
else "wrong: ..." or "refused: ...".

usage: timed.py PEERS.py CASE...
"""
import contextlib
import os
import sys
import tempfile

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHAPES = {"q": (2, 4, 64, 64), "k": (2, 2, 64, 64), "v": (2, 2, 64, 64)}
CAPTURING = []
PRODUCTS = [0]


class Node:
    """An operator with what it read and wrote. Allocations and views do nothing on a GPU."""

    def __init__(self, function, args, kwargs, result):
        self.run, self.result, self.is_enabled = lambda: function(*args, **kwargs), result, True
        self.products = 1 if function == torch.ops.aten.bmm.default else 0
        is_view = any(returned.alias_info and not returned.alias_info.is_write for returned in function._schema.returns)
        self.is_kernel = not is_view and not function._schema.name.startswith("aten::empty")


class Recorded(TorchDispatchMode):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.graph.nodes.append(Node(function, args, kwargs or {}, result))
        return result


class Graph:
    def __init__(self, keep_graph):
        self.nodes = []

    def capture_begin(self): ...

    capture_end = replay = capture_begin


@contextlib.contextmanager
def graph(of, stream):
    CAPTURING.append(of)
    try:
        with Recorded(of):
            yield
    finally:
        CAPTURING.pop()


class Driver:
    KERNEL, WORKING, IDLE = 0, (0,), (5,)

    def us(self, work):
        start = PRODUCTS[0]
        work()
        return PRODUCTS[0] - start

    def captured(self, stream):
        return CAPTURING[-1]

    def nodes(self, graph):
        return graph.nodes

    def kind(self, node):
        return self.KERNEL if node.is_kernel else self.IDLE[0]

    def instantiated(self, graph):
        return list(graph.nodes)

    def launch(self, nodes):
        for node in nodes:
            if not (node.is_kernel and node.is_enabled):
                continue
            again = node.run()
            PRODUCTS[0] += node.products
            if isinstance(node.result, torch.Tensor) and again.data_ptr() != node.result.data_ptr():
                node.result.copy_(again)

    def enable(self, nodes, node, is_enabled):
        node.is_enabled = is_enabled

    def destroy(self, nodes): ...


class Event:
    def record(self): ...

    elapsed_time = synchronize = record


class Stream:
    def wait_stream(self, other): ...

    synchronize = wait_stream


def counted(function):
    """Of what is computed by calls, and in operators of a candidate's own."""

    def call(*args, **kwargs):
        PRODUCTS[0] += 2
        return function(*args, **kwargs)

    return call


def worker_of(path):
    cuda = torch.cuda
    cuda.Stream, cuda.Event, cuda.CUDAGraph, cuda.graph = Stream, Event, Graph, graph
    cuda.current_stream, cuda.stream = lambda *_: Stream(), lambda _: contextlib.nullcontext()
    cuda.empty_cache = lambda *_: None
    cuda.is_current_stream_capturing = lambda: bool(CAPTURING)
    import right

    right.attention = counted(right.attention)
    with open(path) as file:
        text = file.read().removesuffix("main()\n")
    names = {"__name__": "peers"}
    exec(compile(text, path, "exec"), names)
    return names["Worker"]


def told(worker, case):
    file, function, *counts = case.split(":")
    sets, contents, launches = map(int, counts)
    peers, options = worker(), {"causal": True, "softmax_scale": 0.125}
    peers.driver = Driver()
    peers.trusted = peers.functions()
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    peers.load({"peer": "candidate/it", "file": file, "function": function})
    from right import attention as right

    generator = torch.Generator().manual_seed(0)
    inputs = [[torch.randn(shape, generator=generator).half() for shape in SHAPES.values()] for _ in range(contents)]
    expected = [right(*of, **options).float() for of in inputs]
    with tempfile.TemporaryDirectory() as folder:
        operands = [
            [{"file": f"{folder}/{name}{i}", "extents": shape, "scales": []} for name, shape in SHAPES.items()] for i in range(contents)
        ]
        for content, of in zip(operands, inputs):
            for operand, tensor in zip(content, of):
                tensor.numpy().tofile(operand["file"])
        peers.problem({"dtype": "f16", "causal": True, "scale": 0.125, "decode": False, "contents": operands, "sets": sets})
        for i, of in enumerate(peers.sets["bhsd"]):
            assert not any(map(torch.equal, of, inputs[i % contents])), "what is timed is what is judged"
        try:
            replay_us = peers.prepare({"peer": "candidate/it", "launches": launches})
            us = peers.chunk({"peer": "candidate/it", "lead_in": 1, "replays": 2})
            assert replay_us == us <= 2, "of one call"
            written = peers.finish({"peer": "candidate/it", "output": f"{folder}/o"})["sets"]
        except (TypeError, ValueError, type(peers).prepare.__globals__["Unsupported"]) as error:
            return f"refused: {error}"
        assert set(written) == set(range(sets)), written
        off = []
        for i, of in enumerate(written):
            with open(f"{folder}/o{i}", "rb") as file:
                output = torch.frombuffer(bytearray(file.read()), dtype=torch.float16).reshape(SHAPES["q"])
            off.append((output.float() - expected[of % contents]).abs().max().item())
    return "right" if all(by < 2e-3 for by in off) else f"wrong: off by {off}"


def main():
    path, *cases = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    # Tensors are small.
    torch.set_num_threads(1)
    worker = worker_of(path)
    for case in cases:
        print(told(worker, case), file=answers)


main()
