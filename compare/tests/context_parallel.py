"""Runs examples/context_parallel.py on three CPU ranks as it is, then with one fault each, and prints each run's verdict:
"fault <name>: <worst exit code>". Then how it reads arguments and torchrun's environment: "usage <case>: <exit code and words, or
the attention that it uses>". Started by context_parallel.rs with the example's path."""
import contextlib
import io
import multiprocessing
import os
import sys
import tempfile
import types

import torch

RANKS = 3
WORDS = ["--device", "cpu", "--seq", "96", "--heads", "2", "--head-dim", "64"]
FAULTS = {
    "none": ("", ""),
    "partial outputs averaged": ("torch.sigmoid(lse - total)", "torch.full_like(total, 0.5)"),
    "LSE of the first keys kept": ("total.copy_(torch.logaddexp(total, lse))", "pass"),
    "keys of the step before": ("held, spare = spare, held", "pass"),
    "chunks in their plain order": ("return rank, 2 * ranks - 1 - rank", "return 2 * rank, 2 * rank + 1"),
    "early and late ranks mixed up": ("elif source < rank:", "elif source > rank:"),
    "an element that is NaN": ("return total.out.to(q.dtype)", "total.out[0, 0, 0, 0] = torch.nan; return total.out.to(q.dtype)"),
    "a row that is off by 1 %": ("return total.out.to(q.dtype)", "total.out[0, 0, 0] *= 1.01; return total.out.to(q.dtype)"),
}


def example_of(text):
    example = types.ModuleType("context_parallel")
    exec(compile(text, "context_parallel.py", "exec"), example.__dict__)
    return example


def torchrun(ranks, here):
    return {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(here)}


def rank_of(text, rank, rendezvous):
    torch.set_num_threads(1)
    os.environ.update(torchrun(RANKS, RANKS))
    example = example_of(text)
    example.dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS)
    sys.exit(0 if example.run(example.arguments(WORDS), torch.device("cpu")) else 1)


# Arguments and the environment, on a host with two GPUs.
USAGE = {
    "two hosts": ("--device cuda", torchrun(16, 2)),
    "two hosts on CPUs": ("--device cpu", torchrun(16, 8)),
    "too many on a host": ("--device cuda", torchrun(16, 8)),
    "without torchrun": ("--device cpu", {}),
    "chunks": ("--seq 64 102", torchrun(2, 2)),
    "ladder on CPUs": ("--device cpu --attend ladder", torchrun(2, 2)),
    "--heads 0": ("--heads 0", torchrun(2, 2)),
    "--head-dim x": ("--head-dim x", torchrun(2, 2)),
    "--seq -4": ("--seq -4", torchrun(2, 2)),
}


def usage_of(source):
    example = example_of(source)
    torch.cuda.device_count = lambda: 2
    for name, (words, environment) in USAGE.items():
        before = dict(os.environ)
        os.environ.update(environment)
        with contextlib.redirect_stderr(io.StringIO()) as written:
            try:
                result = example.arguments(words.split()).attend
            except SystemExit as end:
                result = f"{end.code} {written.getvalue().strip().splitlines()[-1].partition('error: ')[2]}"
        os.environ.clear()
        os.environ.update(before)
        print(f"usage {name}: {result}", flush=True)


def started(text):
    """The worst exit code of all ranks."""
    context = multiprocessing.get_context("fork")  # PyTorch is imported once
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{folder}/rendezvous"
        ranks = [context.Process(target=rank_of, args=(text, rank, rendezvous)) for rank in range(RANKS)]
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
        print(f"fault {name}: {started(source.replace(old, new) if old else source)}", flush=True)
    usage_of(source)


if __name__ == "__main__":
    main()
