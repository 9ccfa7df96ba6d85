"""Wrong in the ways in which honest programs are."""
import time

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


def hangs(q, k, v, *, causal, softmax_scale):
    time.sleep(600)
