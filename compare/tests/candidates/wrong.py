"""Wrong in the ways in which honest programs are."""
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from right import attention as right


def top_left(q, k, v, **options):
    """Its causal mask is aligned top-left."""
    if not options["causal"] or q.shape[2] == k.shape[2]:
        return right(q, k, v, **options)
    keys = min(q.shape[2], k.shape[2])
    return right(q, k[:, :, :keys], v[:, :, :keys], **options)


def no_scale(q, k, v, **options):
    return right(q, k, v, **options | {"softmax_scale": 1.0})


def zeros(q, k, v, **options):
    return torch.zeros_like(q).contiguous()


def writes_input(q, k, v, **options):
    result = right(q, k, v, **options)
    k.zero_()
    return result


def other_type(q, k, v, **options):
    return right(q, k, v, **options).float()


def raises(q, k, v, **options):
    raise RuntimeError("out of luck")


def exits(q, k, v, **options):
    sys.exit("no licence")


def hangs_in_a_child(q, k, v, **options):
    """Says which processes are its own, of which one has left its group, and lets no other thread of its own run."""
    starts_children()
    ctypes.PyDLL(None).sleep(600)


def starts_children():
    children = [subprocess.Popen(["sleep", "600"], start_new_session=is_new) for is_new in (False, True)]
    said = Path(tempfile.gettempdir()) / "processes"
    said.with_suffix(".new").write_text(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
    said.with_suffix(".new").rename(said)


def crashes(q, k, v, **options):
    starts_children()
    ctypes.string_at(0)
