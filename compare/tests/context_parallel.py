"""Runs examples/context_parallel.py on three CPU ranks as it is, then with one fault each, and prints each run's verdict:
"fault <name>: <worst exit code>". Then which attention it uses where the wheel is present, missing, or refuses, and the times it
reports on a clock that the test controls: "attend <case>: <name or exit code>", "times <case>: <words>". Last, how it reads
arguments and torchrun's environment: "usage <case>: <words, or what it starts>". Started by
context_parallel.rs with the example's path."""
import contextlib
import io
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types

import torch

RANKS = 3
WORDS = ["--device", "cpu", "--ranks", str(RANKS), "--seq", "96", "--heads", "2", "--head-dim", "64"]
FAULTS = {
    "none": ("", ""),
    "partial outputs averaged": ("torch.sigmoid(lse - total)", "torch.full_like(total, 0.5)"),
    "LSE of the first keys kept": ("total.copy_(torch.logaddexp(total, lse))", "pass"),
    "keys of the step before": ("held, spare = spare, held", "pass"),
    "chunks in their plain order": ("return rank, 2 * ranks - 1 - rank", "return 2 * rank, 2 * rank + 1"),
    "early and late ranks mixed up": ("elif source < ring.rank:", "elif source > ring.rank:"),
    "an element that is NaN": ("return total.out.to(q.dtype)", "total.out[0, 0, 0, 0] = torch.nan; return total.out.to(q.dtype)"),
}


def example_of(text):
    example = types.ModuleType("context_parallel")
    exec(compile(text, "context_parallel.py", "exec"), example.__dict__)
    return example


def rank_of(text, rank, rendezvous):
    torch.set_num_threads(1)
    example = example_of(text)
    sys.exit(example.join(rank, RANKS, example.arguments(WORDS), rendezvous))


def wheel(example, refusal=None):
    """The package of the wheel as it is, without the kernels."""

    def launch(q, k, v, out, lse, is_causal, scale, *scales):
        if refusal:
            raise refusal
        result, sums = example.attend_reference(q, k, v, is_causal, scale)
        out.copy_(result)
        lse.copy_(sums)

    native = types.ModuleType("attention_ladder._native")
    native.__version__, native.launch = "0", launch
    sys.modules["attention_ladder._native"] = native
    sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parents[1] / "attention-ladder/python/package"))


def attend_of(text, rank, rendezvous, case):
    """Exits with 0 if rank 0 chose the ladder, with 3 if FlashAttention; else with the example's own exit code."""
    torch.set_num_threads(1)
    example = example_of(text)
    # As on GPUs, of which there are none.
    args = example.arguments(WORDS + ["--attend", "ladder"] * case.startswith("asked for"))
    args.device, said = "cuda", io.StringIO()
    if case.endswith("there"):
        wheel(example)
    elif case.endswith("refused by one rank"):
        wheel(example, NotImplementedError("head_dim = 96 is not supported") if rank == 1 else None)
    else:
        sys.modules["attention_ladder"] = None  # what Python does not find
    example.dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = {"ladder": 0, "flash": 3}[example.attend_for(args, torch.device("cpu"), print)]
        except SystemExit as end:
            code = end.code
    told = said.getvalue()
    words = {"refused by one rank": "(rank 1: head_dim = 96 is not supported)", "missing": "rank 0: import of attention_ladder"}
    expected = next((words[end].strip("()") for end in words if case.endswith(end)), "")
    assert told.count("\n") == (1 if expected else 0) and expected in told, told
    sys.exit(code)


class Clock:
    """A clock that only the test advances; also stands in for a CUDA event."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Clock.now

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e3


def times_of(text, rank, rendezvous, exchange_us):
    """Arithmetic takes 1 us per query and key, and longer during an exchange; prints rank 0's report."""
    torch.set_num_threads(1)
    example = example_of(text)
    torch.cuda.Event, torch.cuda.synchronize = Clock, lambda: None
    arrives = [0.0]

    def attend(q, k, v, causal, scale):
        Clock.now += q.shape[2] * k.shape[2] + (10 if Clock.now < arrives[0] else 0)
        return q, q[..., 0].float()

    def start(ring, sent, received):
        arrives[0] = Clock.now + exchange_us
        return []

    def wait(requests):
        Clock.now = max(Clock.now, arrives[0])

    example.Ring.start, example.Ring.wait = start, staticmethod(wait)
    example.dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS)
    q = torch.zeros(1, 1, 96, 8)
    local = [q[:, :, : 96 // RANKS]] * 3
    times = example.measure(q, q, q, local, {"attend": attend, "causal": False, "scale": 1.0})
    assert len(times) == example.MOST_REPEATS
    if rank == 0:
        print(f"times {exchange_us}: {example.in_words(times, RANKS)}", flush=True)
    sys.exit(0)


# Arguments and the environment, on a host with two GPUs.
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "2"}
USAGE = {
    "two hosts": ("--device cuda", TORCHRUN),
    "two hosts on CPUs": ("--device cpu", {**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}),
    "too many on a host": ("--device cuda", {**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}),
    "other ranks than torchrun": ("--ranks 2", TORCHRUN),
    "the ranks of torchrun": ("--ranks 16", TORCHRUN),
    "more ranks than GPUs": ("--device cuda --ranks 3 --seq 96", {}),
    "WORLD_SIZE alone": ("--device cuda", {"WORLD_SIZE": "16"}),
    "--ranks -1": ("--ranks -1", {}),
    "--heads 0": ("--heads 0", {}),
    "--batch 0": ("--batch 0", {}),
    "--head-dim x": ("--head-dim x", {}),
    "--seq 0": ("--seq 0", {}),
}


def usage_of(source):
    example = example_of(source)
    torch.cuda.device_count = lambda: 2
    for name, (words, environment) in USAGE.items():
        before = dict(os.environ)
        os.environ.update(environment)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                result = f"{example.arguments(words.split()).ranks} ranks"
            except SystemExit as end:
                result = f"{end.code} {said.getvalue().strip().splitlines()[-1].partition('error: ')[2]}"
        os.environ.clear()
        os.environ.update(before)
        print(f"usage {name}: {result}", flush=True)


def started(target, text, *more):
    """The worst exit code of ranks that do `target`."""
    context = multiprocessing.get_context("fork")  # PyTorch is imported once
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{folder}/rendezvous"
        ranks = [context.Process(target=target, args=(text, rank, rendezvous, *more)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return max(abs(process.exitcode) for process in ranks)


def main():
    with open(sys.argv[1]) as file:
        source = file.read()
    for name, (old, new) in FAULTS.items():
        assert name == "none" or source.count(old) == 1, f"{name}: '{old}' is not in the example once"
        code = started(rank_of, source.replace(old, new) if old else source)
        print(f"fault {name}: {code}", flush=True)
    for case in ("there", "missing", "refused by one rank", "asked for and there", "asked for and missing"):
        print(f"attend {case}: {started(attend_of, source, case)}", flush=True)
    for exchange_us in (1000, 1534):
        assert started(times_of, source, exchange_us) == 0
    usage_of(source)


if __name__ == "__main__":
    main()
