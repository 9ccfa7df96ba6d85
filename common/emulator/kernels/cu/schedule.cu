// The schedule of stage 13, without its kernel: (batch, heads, queries, keys), causal. out[0] has the tiles of keys of each block, then how
// often each item was taken.
#include "kernel.h"

#include "../../../../stage13-persistent/schedule.cuh"

namespace {

// What a schedule asks of a preset: 256 rows, 64 keys and 64 columns of two bytes.
struct Tiles {
    struct KvTile {
        static constexpr int ROW_BYTES = 128;
    };
    static constexpr int BLOCK_M = 256, BLOCK_N = 64;
    static constexpr bool PACKED = false;
};

} // namespace

KERNEL(schedule) {
    AttentionParams problem = {};
    problem.batch = params->n[0];
    problem.heads_q = problem.heads_kv = params->n[1];
    problem.seq_q = params->n[2];
    problem.seq_kv = params->n[3];
    problem.mask = ATTENTION_CAUSAL;
    auto *const tiles_of_block = out<int32_t>(params);
    auto *const taken = tiles_of_block + gridDim.x;
    auto schedule = Schedule<Tiles>::start(problem);
    for (;;) {
        const Item item = schedule.next(problem);
        if (item.key_tiles == Item::NO_MORE) break;
        tiles_of_block[blockIdx.x] += item.key_tiles;
        const int tiles = problem.seq_q / Tiles::BLOCK_M, column = item.batch * problem.heads_q + item.head_q;
        ++taken[column * tiles + item.row / Tiles::BLOCK_M];
    }
}
