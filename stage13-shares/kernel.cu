// Stage 13: keys split over the warpgroups of a block. They have the same 64 query rows; each takes its share of the tiles of keys
// and, in the end, of the columns, whose parts they exchange through shared memory. All tiles are requested at once.

#include <attn/mapped.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// Tiles of keys alternate between the warpgroups. Each has slots of its own, which are refilled as soon as they have been read.
template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int WARPGROUPS_, // that share the keys
          int BLOCK_N_,    // keys of a tile
          int SLOTS_>      // tiles of K and V per warpgroup
struct Tile {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_M = attn::WGMMA_M, BLOCK_N = BLOCK_N_, SLOTS = SLOTS_;
    static constexpr int WARPGROUPS = WARPGROUPS_, THREADS = WARPGROUPS * 128;
    static constexpr int SHARE = HEAD_DIM / 2 / WARPGROUPS;                         // of a thread's accumulators
    static constexpr bool CONVERTS = !std::is_same_v<Element, Operand>, LSE = true; // CONVERTS: E4M3, to FP16
    using QTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    // As tiles land, before they are converted.
    using QCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    template <class Kv>
    struct Slots {
        Kv k[SLOTS], v[SLOTS]; // [BLOCK_N, HEAD_DIM] each
    };
    struct Staging {
        QCodes q;
        Slots<KvCodes> slots[WARPGROUPS];
    };
    struct Empty {};
    // A warpgroup's tiles and, where K was when it has been read for the last time, its part of the output, of each other
    // warpgroup's columns, as it lies in the registers of its threads.
    union Part {
        Slots<KvTile> slots;
        float4 o[WARPGROUPS][SHARE / 4][128];
    };
    struct alignas(16) TwoRows {
        attn::RowState half[2];
    };
    struct Shared {
        QTile q; // [BLOCK_M, HEAD_DIM]
        Part parts[WARPGROUPS];
        std::conditional_t<CONVERTS, Staging, Empty> staging;
        TwoRows states[4][WARPGROUPS][8]; // of the rows of each rank, of each warpgroup, of every fourth lane
        attn::Mbarrier q_full, k_full[WARPGROUPS][SLOTS], v_full[WARPGROUPS][SLOTS];
    };
    static constexpr int Q_BOX_ROWS = BLOCK_M, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 0;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Operand::PROBABILITY;
    static constexpr int CONVERT_BARRIER = 1; // a named barrier of each warpgroup, which converts its tiles
    static_assert(WARPGROUPS == 2 || WARPGROUPS == 4, "the others of a warpgroup are warpgroup ^ i");
    static_assert(sizeof(Part::o) <= sizeof(Slots<KvTile>::k), "a product may still read V");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM, SHARE = Preset::SHARE, SLOTS = Preset::SLOTS;
    constexpr int WARPGROUPS = Preset::WARPGROUPS;
    const AttentionParams &params = launch.params;
    using Operand = typename Preset::Operand;
    // By shuffle: uniform in a warp, for the compiler; copies then start without a loop over lanes.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, thread = threadIdx.x % 128;
    const int warpgroup = warp / 4, rank = warp % 4; // of the warp in its warpgroup

    // This block's rows and head, and the tiles that the last row sees. Under the causal mask the last rows see the most keys:
    // their blocks start first.
    const int batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int first_row = (gridDim.x - 1 - blockIdx.x) * Preset::BLOCK_M;
    const int key_end = attn::visible_keys(params, min(first_row + Preset::BLOCK_M, params.seq_q) - 1);
    const int tiles = (key_end + BLOCK_N - 1) / BLOCK_N;

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    auto &q_codes = [&]() -> auto & { // where TMA brings tiles
        if constexpr (Preset::CONVERTS) return smem.staging.q;
        else return smem.q;
    }();
    const auto codes_of = [&](int part) -> auto & {
        if constexpr (Preset::CONVERTS) return smem.staging.slots[part];
        else return smem.parts[part].slots;
    };
    // Start the copy of a tile, if there is one, into a slot of the warpgroup whose turn it is.
    const auto load = [&](auto &codes, const AttentionTensorMap &map, attn::Mbarrier *full, int tile) {
        if (tile >= tiles) return;
        attn::mbarrier_arrive_expect_tx(full, Preset::KvCodes::BYTES);
        codes.load(map, full, tile * BLOCK_N, head_kv, batch);
    };
    const auto load_k = [&](int part, int slot, int tile) {
        load(codes_of(part).k[slot], launch.k, &smem.k_full[part][slot], tile);
    };
    const auto load_v = [&](int part, int slot, int tile) {
        load(codes_of(part).v[slot], launch.v, &smem.v_full[part][slot], tile);
    };
    const auto init_all = [](attn::Mbarrier (&full)[WARPGROUPS][SLOTS]) {
        for (auto &slots : full) {
            for (auto &slot : slots) attn::mbarrier_init(&slot, 1);
        }
    };
    // One thread fills all slots in the order in which they are needed: Q, then K and V of each warpgroup's first tile, then of the
    // second. It is one of the last warpgroup, whose tiles come last. Q and the first K are in flight before anything else is done;
    // nothing is started that nobody will wait for: a block must not end before its copies.
    constexpr int FILLING_WARP = (WARPGROUPS - 1) * 4;
    if (warp == FILLING_WARP && attn::elect_one()) {
        attn::mbarrier_init(&smem.q_full, 1);
        init_all(smem.k_full);
        init_all(smem.v_full);
        attn::fence_mbarrier_init();
        if (tiles > 0) {
            attn::mbarrier_arrive_expect_tx(&smem.q_full, Preset::QCodes::BYTES);
            q_codes.load(launch.q, &smem.q_full, first_row, head_q, batch);
        }
#pragma unroll
        for (int part = 0; part < WARPGROUPS; ++part) load_k(part, 0, part);
    }

    const int warp_row = first_row + rank * 16, thread_row = warp_row + lane / 4; // and the 8th row after it
    const int visible_to_all = attn::visible_keys(params, warp_row); // keys that all rows of the warp see
    int visible[2];                                                  // keys that the thread's two rows see
    attn::RowState state[2];                                         // of the thread's two rows
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, thread_row + half * 8);
        state[half] = attn::RowState::empty();
    }
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    float rescale[2];                            // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
    attn::fence_operands(o_acc); // they stay here: of E4M3 ptxas otherwise serialises the products (C7515)
 ATTN_PLACES(at, batch, head_q, thread_row + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);

    // The barriers are initialised. The rest is requested behind that: nobody waits until all copies have been started.
    __syncthreads();
    if (warp == FILLING_WARP && attn::elect_one()) {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
#pragma unroll
            for (int part = 0; slot > 0 && part < WARPGROUPS; ++part) load_k(part, slot, slot * WARPGROUPS + part);
#pragma unroll
            for (int part = 0; part < WARPGROUPS; ++part) load_v(part, slot, slot * WARPGROUPS + part);
        }
    }
    // The tile has landed. E4M3 is converted by its warpgroup: each thread makes its part visible to the tensor cores, and behind
    // the barrier the tile is complete, and the codes have been read.
    const auto wait_for = [&](attn::Mbarrier &full, int parity, auto &tile, auto &codes) {
        attn::mbarrier_wait_tx(&full, parity);
        if constexpr (Preset::CONVERTS) {
            attn::convert_tile<128>(tile, codes, thread);
            attn::fence_proxy_async();
            attn::named_barrier_sync<128>(Preset::CONVERT_BARRIER + warpgroup);
        }
    };
    auto &slots = smem.parts[warpgroup].slots;
    auto &codes = codes_of(warpgroup);
    const auto wait_k = [&](const auto &pipe) {
        wait_for(smem.k_full[warpgroup][pipe.slot], pipe.parity, slots.k[pipe.slot], codes.k[pipe.slot]);
    };
    const auto wait_v = [&](const auto &pipe) {
        wait_for(smem.v_full[warpgroup][pipe.slot], pipe.parity, slots.v[pipe.slot], codes.v[pipe.slot]);
    };
    if (tiles > 0) {
        attn::mbarrier_wait_tx(&smem.q_full, 0);
        if constexpr (Preset::CONVERTS) { // by the block, in the same way
            attn::convert_tile<Preset::THREADS>(smem.q, q_codes, threadIdx.x);
            attn::fence_proxy_async();
            __syncthreads();
        }
    }
    const auto mask_and_softmax = [&](int tile) {
        if ((tile + 1) * BLOCK_N > visible_to_all) attn::mask_rows(s, tile * BLOCK_N, visible, lane);
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
    };
    // The slots of K of the current tile, and of V of the previous one.
    auto current = attn::PipelineState<SLOTS>::first(), previous = current;
    int tile = warpgroup;
    if (tile < tiles) {
        wait_k(current);
        attn::start_qk(s, smem.q, 0, slots.k[current.slot]);
        attn::wgmma_wait<0>(s);
        // The product has read K: the slot is refilled.
        if (rank == 0 && attn::elect_one()) load_k(warpgroup, current.slot, tile + WARPGROUPS * SLOTS);
        mask_and_softmax(tile);
        attn::round_rows<Operand>(p_frag, s);
        current.advance();
        // Both products of a step are started together: the scores of this tile and the output of the previous one, whose V may
        // still be on its way. The output is in flight while exponentials are computed.
#pragma unroll 1
        for (tile += WARPGROUPS; tile < tiles; tile += WARPGROUPS) {
            wait_k(current);
            attn::start_qk(s, smem.q, 0, slots.k[current.slot]);
            wait_v(previous);
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, slots.v[previous.slot]);
            attn::wgmma_wait<1>(s);
            if (rank == 0 && attn::elect_one()) load_k(warpgroup, current.slot, tile + WARPGROUPS * SLOTS);
            mask_and_softmax(tile);
            attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile - WARPGROUPS) * BLOCK_N, o_acc);
            if (rank == 0 && attn::elect_one()) load_v(warpgroup, previous.slot, tile + WARPGROUPS * (SLOTS - 1)); // the same for V
            attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
            attn::round_rows<Operand>(p_frag, s);
            previous = current, current.advance();
        }
        wait_v(previous);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, slots.v[previous.slot]);
    }

    // Where the last round has no tile for it, a warpgroup comes to its barrier as often as the others do. The program does not need
    // that; racecheck (C7) does: after different numbers of barriers it takes the block's, below, for none.
    if constexpr (Preset::CONVERTS) {
        const bool sits_out = tiles % WARPGROUPS != 0 && warpgroup >= tiles % WARPGROUPS;
#pragma unroll 1
        for (int i = 0; sits_out && i < 2; ++i) attn::named_barrier_sync<128>(Preset::CONVERT_BARRIER + warpgroup); // as for K and V
    }

    // While the last product runs: the output's scale and place, two halves per word, and the rows' states are stored.
    const float scale = attn::scale_of(params.v, params.heads_kv, batch, head_kv);
    auto *const o_row = attn::row_address<typename Operand::Storage>(params.o, batch, head_q, thread_row);
    uint32_t *const first_o = reinterpret_cast<uint32_t *>(o_row) + warpgroup * SHARE + lane % 4;
    auto &states = smem.states[rank];
    state[0].template join<4>();
    state[1].template join<4>();
    if (lane % 4 == 0) states[warpgroup][lane / 4] = {{state[0], state[1]}};
    attn::wgmma_wait<0>(o_acc);
 if (warpgroup < tiles) ATTN_OBSERVE(OUTPUT, at, (tile - WARPGROUPS) * BLOCK_N, o_acc);

    // Each warpgroup owns its share of the columns, and gets the others' parts of them, where K was, which all products have read.
    // Branches, since registers cannot be indexed.
    float own[SHARE]; // of [64, HEAD_DIM / WARPGROUPS]
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i += 4) {
        const int owner = i / SHARE, quad = i % SHARE / 4;
        if (owner != warpgroup) {
            smem.parts[warpgroup].o[owner][quad][thread] = make_float4(o_acc[i], o_acc[i + 1], o_acc[i + 2], o_acc[i + 3]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) own[4 * quad + j] = o_acc[i + j];
        }
    }
    // All warps have stored their states and parts.
    __syncthreads();

    // What each warpgroup's output is multiplied by, its own first.
    float factor[WARPGROUPS][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        attn::RowState part[WARPGROUPS];
        state[half] = attn::RowState::empty(); // of all keys, from here on
#pragma unroll
        for (int i = 0; i < WARPGROUPS; ++i) {
            part[i] = states[warpgroup ^ i][lane / 4].half[half];
            state[half].max = fmaxf(state[half].max, part[i].max);
        }
 ATTN_STEP(MERGE);
#pragma unroll
        for (int i = 0; i < WARPGROUPS; ++i) {
            factor[i][half] = state[half].factor(part[i]);
            state[half].sum = fmaf(part[i].sum, factor[i][half], state[half].sum);
        }
        const float inverse = state[half].inverse_sum() * scale;
#pragma unroll
        for (int i = 0; i < WARPGROUPS; ++i) factor[i][half] *= inverse;
    }
#pragma unroll
    for (int i = 0; i < SHARE; ++i) own[i] *= factor[0][i % 4 / 2];
#pragma unroll
    for (int i = 1; i < WARPGROUPS; ++i) {
#pragma unroll
        for (int j = 0; j < SHARE; j += 4) {
            const float4 other = smem.parts[warpgroup ^ i].o[warpgroup][j / 4][thread];
            own[j] = fmaf(other.x, factor[i][0], own[j]);
            own[j + 1] = fmaf(other.y, factor[i][0], own[j + 1]);
            own[j + 2] = fmaf(other.z, factor[i][1], own[j + 2]);
            own[j + 3] = fmaf(other.w, factor[i][1], own[j + 3]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (thread_row + half * 8 >= params.seq_q) continue;
        uint32_t *o = first_o + half * 4 * params.o.row_stride;
#pragma unroll
        for (int d = 0; d < SHARE / 4; ++d) o[d * 4] = Operand::pack(own[4 * d + 2 * half], own[4 * d + 2 * half + 1]);
    }
    if (warpgroup == 0) attn::store_lse_rows(params, batch, head_q, thread_row, state, scale_log2, lane);
}

// Rows x keys that are requested at once; at head_dim 128, where the output takes more registers, half of the keys and of the
// warpgroups.
template <class Element, int HEAD_DIM> using Shares64x512 = Tile<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 2, 64, 2>;

} // namespace

ATTN_MAPPED_VARIANT(shares, shares_64x512, Shares64x512)
