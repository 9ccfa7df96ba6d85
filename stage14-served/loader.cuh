// The warps that compute nothing: one finds items, one requests what all others read, as far ahead as there are slots, and one clears
// what came of somebody else's rows. Preset::Shared has tiles of rows, K and V, the ring of each, and the items that belong to the rows.
#pragma once

#include <attn/box_tile.cuh>
#include "schedule.cuh"

namespace {

// A slot of a ring and the parity of its phase, in one register. PipelineState takes two, and three consumers have none to spare.
template <int SLOTS>
struct Place {
    int step; // from 0 to 2 * SLOTS - 1: two laps

    static __device__ __forceinline__ Place first() { return {0}; }
    __device__ __forceinline__ int slot() const { return step < SLOTS ? step : step - SLOTS; }
    __device__ __forceinline__ int parity() const { return step < SLOTS ? 0 : 1; }
    __device__ __forceinline__ void advance() { step = step + 1 == 2 * SLOTS ? 0 : step + 1; }
    __device__ __forceinline__ Place previous() const { return {step == 0 ? 2 * SLOTS - 1 : step - 1}; }
};
static_assert(std::is_trivially_default_constructible_v<Place<2>>, "first() says where it starts");

// The barriers of tiles that are used again and again. A slot is full when TMA has written it, or when all have arrived that wrote it or
// have nothing to write, and empty when all that read it have arrived.
template <int SLOTS>
struct Ring {
    attn::Mbarrier full[SLOTS], empty[SLOTS];

    // By one thread, before any other uses it. `readers`: how many arrive when they have read; `writers`: likewise, when they have written.
    __device__ __forceinline__ void init(int readers, int writers = 1) {
        for (auto &barrier : full) attn::mbarrier_init(&barrier, writers);
        for (auto &barrier : empty) attn::mbarrier_init(&barrier, readers);
    }
    // The slot is full.
    __device__ __forceinline__ void wait_full(const Place<SLOTS> &at) {
        attn::mbarrier_wait_tx(&full[at.slot()], at.parity());
    }
    // Everybody has read the tile before; in the first lap nobody waits.
    __device__ __forceinline__ void wait_empty(const Place<SLOTS> &at) {
        attn::mbarrier_wait_tx(&empty[at.slot()], at.parity() ^ 1);
    }
};

// Scheduler: finding an item takes as long as two tiles of keys, since lengths come from L2, and a division follows another. So a warp
// does nothing else, and has the loader's next item when it asks for one.
template <class Preset>
__device__ __forceinline__ void find_items(const AttentionServed &served, typename Preset::Shared &smem) {
    const int lane = threadIdx.x % 32;
    auto schedule = Schedule<Preset>::start(served, lane);
    auto place = Place<Preset::FOUND_SLOTS>::first();
#pragma unroll 1
    for (int round = 0;; ++round, place.advance()) {
        const Found found = schedule.find(served, index_of_round(round), lane);
        // The loader has read the slot's item before.
        smem.found.wait_empty(place);
        if (attn::elect_one()) {
            Item &item = smem.found_items[place.slot()];
            if (found.sequence == Found::NO_MORE) item = Item::end();
            else item = schedule.item_of(served, found);
            attn::mbarrier_arrive(&smem.found.full[place.slot()]);
        }
        if (found.sequence == Found::NO_MORE) return;
    }
}

// The tiles of an item's keys, from the last. `box_rows`: of K and V; each lane requests one box.
template <class Preset>
__device__ __forceinline__ void load_tiles(const AttentionServed &served, typename Preset::Shared &smem, const Item &item, int box_rows,
                                           int lane, Place<Preset::K_SLOTS> &k, Place<Preset::V_SLOTS> &v) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const AttentionLaunch &launch = served.launch;
    const AttentionServing &serving = served.serving;
    const int highest_tile = item.first_tile + item.key_tiles - 1;
#pragma unroll 1
    for (int tile = highest_tile; tile >= item.first_tile; --tile) {
        // The lane's box. Behind the last key there are no entries of the table: those pages are outside of the tensor.
        const int key = tile * BLOCK_N + lane * box_rows;
        int row = item.kv_start + key, batch = item.kv_batch;
        if (serving.pages) {
            row = key & (serving.page_rows - 1);
            batch = -1;
            if (lane * box_rows < BLOCK_N && key < item.lengths.keys) {
                batch = serving.pages[static_cast<int64_t>(item.sequence) * serving.pages_stride + key / serving.page_rows];
            }
        }
        const auto copy = [&](auto &to, const AttentionTensorMap &map, attn::Mbarrier *barrier) {
            if (attn::elect_one()) attn::mbarrier_arrive_expect_tx(barrier, to.BYTES);
            if (lane * box_rows < BLOCK_N) to.load(map, barrier, row, item.head_kv, batch, lane * box_rows);
        };
        // Every consumer has read the slot's tile before.
        smem.k.wait_empty(k);
        copy(smem.k_tiles[k.slot()], launch.k, &smem.k.full[k.slot()]);
        k.advance();
        smem.v.wait_empty(v);
        const bool is_whole = tile < highest_tile || item.template keys_of_highest_tile<Preset>() >= BLOCK_N;
        copy(smem.v_tiles[v.slot()], launch.v, is_whole ? &smem.v.full[v.slot()] : &smem.landing.landed[v.slot()]);
        v.advance();
    }
}

// The first row of a box of keys: of a sequence's tensor, or of a page.
struct Box {
    int row, batch;
};

// The same, of codes, which come in half of the time: a page's number is looked up a tile ahead.
template <class Preset, class CodePlace>
__device__ __forceinline__ void load_codes(const AttentionServed &served, typename Preset::Shared &smem, const Item &item, int box_rows,
                                           int lane, CodePlace &codes) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const AttentionLaunch &launch = served.launch;
    const AttentionServing &serving = served.serving;
    const int highest_tile = item.first_tile + item.key_tiles - 1;
    // Where the lane's box of a tile is. Behind the last key there are no entries of the table: those pages are outside of the tensor.
    const auto box_of = [&](int tile) {
        const int key = tile * BLOCK_N + lane * box_rows;
        if (serving.pages == nullptr) return Box{item.kv_start + key, item.kv_batch};
        Box box = {key & (serving.page_rows - 1), -1};
        if (tile >= item.first_tile && lane * box_rows < BLOCK_N && key < item.lengths.keys) {
            box.batch = serving.pages[static_cast<int64_t>(item.sequence) * serving.pages_stride + key / serving.page_rows];
        }
        return box;
    };
    Box box = box_of(highest_tile);
#pragma unroll 1
    for (int tile = highest_tile; tile >= item.first_tile; --tile) {
        const Box next = box_of(tile - 1);
        const auto copy = [&](const AttentionTensorMap &map) {
            // The widening warps have read the slot's codes before.
            smem.landing.ring.wait_empty(codes);
            auto &to = smem.landing.tiles[codes.slot()];
            attn::Mbarrier *const full = &smem.landing.ring.full[codes.slot()];
            if (attn::elect_one()) attn::mbarrier_arrive_expect_tx(full, to.BYTES);
            if (lane * box_rows < BLOCK_N) to.load(map, full, box.row, item.head_kv, box.batch, lane * box_rows);
            codes.advance();
        };
        copy(launch.k);
        copy(launch.v);
        box = next;
    }
}

// Loader: Q, and tiles of keys from the last, so that those on the diagonal come first. Rings run on from one item to the next. By a warp:
// one lane says how many bytes will come, and each of several requests a box of them. Bytes may come before they are expected: a phase
// does not end before the arrival that expects them.
template <class Preset>
__device__ __forceinline__ void load(const AttentionServed &served, typename Preset::Shared &smem) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const AttentionLaunch &launch = served.launch;
    const AttentionServing &serving = served.serving;
    const int lane = threadIdx.x % 32;
    const int box_rows = serving.pages ? min(serving.page_rows, BLOCK_N) : BLOCK_N; // of K and V
    auto found = Place<Preset::FOUND_SLOTS>::first();
    auto rows = Place<Preset::ROW_SLOTS>::first();
    auto k = Place<Preset::K_SLOTS>::first();
    auto v = Place<Preset::V_SLOTS>::first();
    auto codes = Place<Preset::WIDENS ? Preset::CODE_SLOTS : 1>::first();
#pragma unroll 1
    for (;; found.advance()) {
        smem.found.wait_full(found);
        const Item item = smem.found_items[found.slot()];
        __syncwarp(); // all lanes have read the item, which another one may replace
        if (attn::elect_one()) attn::mbarrier_arrive(&smem.found.empty[found.slot()]);
        // All warps have read the item before, and its O has left the slot.
        smem.rows.wait_empty(rows);
        attn::Mbarrier *const full = &smem.rows.full[rows.slot()];
        const bool has_keys = item.key_tiles > 0;
        if (attn::elect_one()) {
            smem.items[rows.slot()] = item;
            if (has_keys) attn::mbarrier_arrive_expect_tx(full, Preset::RowTile::BYTES);
            else attn::mbarrier_arrive(full); // there is no key to ask for, or no item
        }
        if (item.key_tiles == Item::NO_MORE) return;
        // Rows behind the sequence's end are a neighbour's or zero: nobody stores what becomes of them.
        if (has_keys && lane < Preset::WARPS) {
            smem.row_tiles[rows.slot()].load(launch.q, full, item.q_start + item.row_of(lane), item.head_of(lane), item.q_batch, lane * 16);
        }
        rows.advance();
        if constexpr (Preset::WIDENS) load_codes<Preset>(served, smem, item, box_rows, lane, codes);
        else load_tiles<Preset>(served, smem, item, box_rows, lane, k, v);
    }
}

// Barriers on which the mender waits before it completes a tile of V.
template <int SLOTS>
struct Landing {
    attn::Mbarrier landed[SLOTS]; // TMA has written the tile

    // By one thread, before any other uses it. The number of readers is for Codes::init alone.
    __device__ __forceinline__ void init(int) {
        for (auto &barrier : landed) attn::mbarrier_init(&barrier, 1);
    }
};

// Mender: V of the sequence's last tile has rows that are not its own, behind its end: a neighbour's, or what nobody ever wrote. Their
// probabilities are zero, and 0 * NaN would reach the output. TMA fills with zeros behind the tensor's end alone, so a warp clears them,
// before consumers get the tile. (In K they do no harm: a masked score is replaced.)
template <class Preset>
__device__ __forceinline__ void mend(typename Preset::Shared &smem) {
    constexpr int BLOCK_N = Preset::BLOCK_N, CHUNKS = Preset::KvTile::ROW_BYTES / 16; // of a row
    const int lane = threadIdx.x % 32;
    auto rows = Place<Preset::ROW_SLOTS>::first();
    int slot = 0;     // of V, for the first tile that the item asks for: its last
    int parities = 0; // bit i: that of the phase that landed[i] is in
#pragma unroll 1
    for (;; rows.advance()) {
        smem.rows.wait_full(rows);
        const int key_tiles = smem.items[rows.slot()].key_tiles, valid = smem.items[rows.slot()].template keys_of_highest_tile<Preset>();
        __syncwarp(); // all lanes have read the item, which may be followed by another
        if (attn::elect_one()) attn::mbarrier_arrive(&smem.rows.empty[rows.slot()]);
        if (key_tiles == Item::NO_MORE) return;
        if (key_tiles > 0 && valid < BLOCK_N) {
            // TMA has written the tile.
            attn::mbarrier_wait_tx(&smem.landing.landed[slot], parities >> slot & 1);
            parities ^= 1 << slot;
#pragma unroll 1
            for (int chunk = valid * CHUNKS + lane; chunk < BLOCK_N * CHUNKS; chunk += 32) {
                *reinterpret_cast<uint4 *>(smem.v_tiles[slot].at(chunk / CHUNKS, chunk % CHUNKS)) = make_uint4(0, 0, 0, 0);
            }
            // Each lane makes its zeros visible to wgmma, before one of them says that the slot is full.
            attn::fence_proxy_async();
            __syncwarp();
            if (attn::elect_one()) attn::mbarrier_arrive(&smem.v.full[slot]);
        }
        slot = (slot + key_tiles) % Preset::V_SLOTS;
    }
}

} // namespace
