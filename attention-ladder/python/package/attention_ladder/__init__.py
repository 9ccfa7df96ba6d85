"""Fused attention forward (SDPA; FP16, BF16 and FP8 E4M3) on NVIDIA GPUs, with log-sum-exps on request.

`varlen_attn` takes sequences of unequal lengths, packed one after the other or with keys in pages, on Hopper. `flash_attn_func`,
`flash_attn_varlen_func` and `flash_attn_with_kvcache` have FlashAttention-3's signatures. `install` has PyTorch, transformers or diffusers
call all of these, and `fallbacks` counts the calls that it leaves to what was there before.

Call them directly; `torch.ops.attention_ladder.sdpa`, `sdpa_lse` and `varlen` are the same as registered operators, for torch.compile graphs.
Tensors that are more than memory (subclasses, fake and meta tensors, transforms of torch.func, lazily negated ones) go through PyTorch's
dispatcher, and are computed correctly or refused by name; gradients and tangents are refused. All launch on PyTorch's current stream,
in the current context (a green one, too), into memory of PyTorch's allocator, and can be captured into a CUDA graph. The kernel is the
fastest by a model of the times on this GPU, or on the most similar one that was measured, the same in a green context as outside;
`variant` names it. Profilers see a direct call under its operator's name, and FlopCounterMode counts both.
"""

from . import _native
from ._dense import sdpa, variant
from ._doors import fallbacks, install, uninstall
from ._flash import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from ._served import varlen_attn

__all__ = [
    "fallbacks",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "install",
    "sdpa",
    "uninstall",
    "variant",
    "varlen_attn",
]
__version__: str = _native.__version__
