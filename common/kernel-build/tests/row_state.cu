// The state of a warp's rows as stage 5 declares and initialises it, stored: the PTX shows what each element starts as.
#include <attn/softmax.cuh>

extern "C" __global__ void first_state(float2 *out) {
    attn::RowState state[2][2];
    for (int m = 0; m < 2; ++m) {
        for (int half = 0; half < 2; ++half) state[m][half] = attn::RowState::empty();
    }
    for (int m = 0; m < 2; ++m) {
        for (int half = 0; half < 2; ++half) out[m * 2 + half] = make_float2(state[m][half].max, state[m][half].sum);
    }
}
