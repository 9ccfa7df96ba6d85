from contextlib import AbstractContextManager

from torch import Tensor

__version__: str

def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    is_causal: bool,
    scale: float | None,
    q_scale: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    return_lse: bool,
    batch_invariant: bool,
    is_dispatched: bool,
    record: AbstractContextManager[object] | None,
    /,
) -> Tensor | tuple[Tensor, Tensor] | None: ...
def check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    q_scale: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    batch_invariant: bool,
    /,
) -> None: ...
def variant(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, return_lse: bool, batch_invariant: bool, /
) -> str: ...
def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    scale: float | None,
    window_left: int,
    window_right: int,
    seqused_k: Tensor | None,
    block_table: Tensor | None,
    sinks: Tensor | None,
    softcap: float,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    return_lse: bool,
    is_dispatched: bool,
    /,
) -> Tensor | tuple[Tensor, Tensor] | None: ...
def check_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int,
    max_k: int,
    scale: float | None,
    window_left: int,
    window_right: int,
    seqused_k: Tensor | None,
    block_table: Tensor | None,
    sinks: Tensor | None,
    softcap: float,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    /,
) -> None: ...
