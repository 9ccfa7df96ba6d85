"""Runs examples/context_parallel.py on three CPU ranks as it is, then with one fault each, and prints what each run said of
itself: "fault <name>: <worst exit code>". Started by context_parallel.rs with the example's path."""
import multiprocessing
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


def rank_of(text, rank, rendezvous):
    torch.set_num_threads(1)
    example = types.ModuleType("context_parallel")
    exec(compile(text, "context_parallel.py", "exec"), example.__dict__)
    sys.exit(example.join(rank, RANKS, example.arguments(WORDS), rendezvous))


def main():
    with open(sys.argv[1]) as file:
        source = file.read()
    context = multiprocessing.get_context("fork")  # PyTorch is imported once
    for name, (old, new) in FAULTS.items():
        assert name == "none" or source.count(old) == 1, f"{name}: '{old}' is not in the example once"
        text = source.replace(old, new) if old else source
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                context.Process(target=rank_of, args=(text, rank, f"file://{folder}/rendezvous")) for rank in range(RANKS)
            ]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
        print(f"fault {name}: {max(abs(process.exitcode) for process in ranks)}", flush=True)


if __name__ == "__main__":
    main()
