"""Wrong in the ways in which honest programs are."""
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from right import attention as right


def top_left(q, k, v, *, causal, softmax_scale):
    """Its causal mask is aligned top-left."""
    if not causal or q.shape[2] == k.shape[2]:
        return right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    keys = min(q.shape[2], k.shape[2])
    return right(q, k[:, :, :keys], v[:, :, :keys], causal=True, softmax_scale=softmax_scale)


def no_scale(q, k, v, *, causal, softmax_scale):
    return right(q, k, v, causal=causal, softmax_scale=1.0)


def zeros(q, k, v, *, causal, softmax_scale):
    return torch.zeros_like(q).contiguous()


def writes_input(q, k, v, *, causal, softmax_scale):
    result = right(q, k, v, causal=causal, softmax_scale=softmax_scale)
    k.zero_()
    return result


def other_type(q, k, v, *, causal, softmax_scale):
    return right(q, k, v, causal=causal, softmax_scale=softmax_scale).float()


def raises(q, k, v, *, causal, softmax_scale):
    raise RuntimeError("out of luck")


def exits(q, k, v, *, causal, softmax_scale):
    sys.exit("no licence")


def hangs_in_a_child(q, k, v, *, causal, softmax_scale):
    """Says which processes are its own, of which one has left its group, and lets no other thread of its own run."""
    starts_children()
    ctypes.PyDLL(None).sleep(600)


def starts_children():
    children = [subprocess.Popen(["sleep", "600"], start_new_session=is_new) for is_new in (False, True)]
    said = Path(tempfile.gettempdir()) / "processes"
    said.with_suffix(".new").write_text(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
    said.with_suffix(".new").rename(said)


def crashes(q, k, v, *, causal, softmax_scale):
    starts_children()
    ctypes.string_at(0)
