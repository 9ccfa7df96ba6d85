"""The wheel as a candidate: cargo run -p compare -- candidate attention-ladder/python/candidate.py:attention

The Python that --python names needs torch and the wheel.
"""

import attention_ladder


def attention(q, k, v, *, causal, softmax_scale, scales=None):
    scales = dict(zip(("q_scale", "k_scale", "v_scale"), scales or ()))
    return attention_ladder.sdpa(q, k, v, is_causal=causal, scale=softmax_scale, **scales)
