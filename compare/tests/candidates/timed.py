"""What is timed of a candidate, on the CPU: the worker that peers.py is, with graphs that are recorded operator by operator and
replayed on the same memory, as a GPU does. Started by candidate.rs with peers.py and cases: FILE.py:FUNCTION:SETS:CONTENTS:LAUNCHES, of
files beside this one. Prints a line for each: "right" if what was timed wrote what is right, else "wrong: ..." or "refused: ...".

usage: timed.py PEERS.py CASE...
"""
import contextlib
import os
import sys
import tempfile

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHAPES = {"q": (2, 4, 64, 64), "k": (2, 2, 64, 64), "v": (2, 2, 64, 64)}
CAPTURING = [False]


class Recorded(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operators.append((function, args, kwargs or {}, result))
        return result


class Graph:
    def replay(self):
        for function, args, kwargs, result in self.recorded.operators:
            again = function(*args, **kwargs)
            if isinstance(result, torch.Tensor) and again.data_ptr() != result.data_ptr():
                result.copy_(again)


@contextlib.contextmanager
def graph(of):
    of.recorded, CAPTURING[0] = Recorded(), True
    try:
        with of.recorded:
            yield
    finally:
        CAPTURING[0] = False


class Event:
    def __init__(self, enable_timing=False):
        pass

    def record(self):
        pass

    def elapsed_time(self, end):
        return 1.0


class Stream:
    def wait_stream(self, other):
        pass


def worker_of(path):
    cuda = torch.cuda
    cuda.Stream, cuda.Event, cuda.CUDAGraph, cuda.graph = Stream, Event, Graph, graph
    cuda.current_stream, cuda.stream = lambda *_: Stream(), lambda _: contextlib.nullcontext()
    cuda.synchronize = cuda.empty_cache = lambda *_: None
    cuda.is_current_stream_capturing = lambda: CAPTURING[0]
    torch.Tensor.cuda = lambda tensor: tensor
    with open(path) as file:
        text = file.read().removesuffix("main()\n")
    names = {"__name__": "peers"}
    exec(compile(text, path, "exec"), names)
    return names["Worker"]


def told(worker, case):
    file, function, *counts = case.split(":")
    sets, contents, launches = map(int, counts)
    peers, options = worker(), {"causal": True, "softmax_scale": 0.125}
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    peers.load({"peer": "candidate/it", "file": file, "function": function})
    assert not peers.absent, peers.absent
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
        peers.problem({"dtype": "f16", "causal": True, "scale": 0.125, "contents": operands, "sets": sets})
        for i, of in enumerate(peers.sets["bhsd"]):
            assert not any(map(torch.equal, of, inputs[i % contents])), "what is timed is what is judged"
        before = [[tensor.clone() for tensor in of] for of in peers.sets["bhsd"]]
        outputs = [f"{folder}/o{i}" for i in range(sets)]
        try:
            peers.prepare({"peer": "candidate/it", "launches": launches})
            peers.chunk({"peer": "candidate/it", "lead_in": 1, "replays": 2})
            peers.finish({"peer": "candidate/it", "outputs": outputs})
        except (TypeError, ValueError) as error:
            return f"refused: {error}"
        for of, was in zip(peers.sets["bhsd"], before):
            assert all(map(torch.equal, of, was)), "the inputs are not what they were"
        worst = 0.0
        for i, name in enumerate(outputs):
            with open(name, "rb") as file:
                output = torch.frombuffer(bytearray(file.read()), dtype=torch.float16).reshape(SHAPES["q"])
            off = (output.float() - expected[i % contents]).abs().max().item()
            worst = off if not off <= worst else worst
    return "right" if worst < 2e-3 else f"wrong: off by {worst}"


def main():
    path, *cases = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    worker = worker_of(path)
    for case in cases:
        print(told(worker, case), file=answers)


main()
