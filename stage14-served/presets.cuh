// What presets choose, by name: the sizes of tiles and rings, and how warpgroups work.
#pragma once

namespace {

// A preset says what it has otherwise.
struct Defaults {
    static constexpr int CONSUMERS = 2;            // warpgroups that compute, with 64 rows each; one more loads
    static constexpr int BLOCK_N = 128;            // keys of a tile
    static constexpr int K_SLOTS = 2, V_SLOTS = 2; // of the rings
    static constexpr bool Q_IN_REGISTERS = true;   // wgmma then reads K alone from shared memory, while TMA writes there
    static constexpr bool EXACT_OVERLAPS = true;   // P·V runs under an exact softmax, too; else that waits for it, and has P's registers
    static constexpr bool PINGPONG = true;         // warpgroups start products in turns: one multiplies, one has its exponentials
    static constexpr bool SKIPS_ROWS = false;      // a warp whose last 8 rows do not exist has no exponentials of them
    // Of a loading and of a computing thread: those of the launch, redistributed. One warpgroup has enough of them as they are.
    static constexpr int LOADER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
    // For K and V in E4M3: the warpgroups that widen their codes, with their registers, and the tiles of codes on their way.
    static constexpr int WIDENERS = 0, WIDENER_REGISTERS = 0, CODE_SLOTS = 0;
};

// Rows x keys of a tile.
struct Pingpong128x128 : Defaults {
    static constexpr int K_SLOTS = 3;
};
// Three warpgroups that multiply when they can. They have no registers for Q.
struct Wide192 : Defaults {
    static constexpr int CONSUMERS = 3, K_SLOTS = 4, V_SLOTS = 4;
    static constexpr bool Q_IN_REGISTERS = false, EXACT_OVERLAPS = false, PINGPONG = false;
    static constexpr int LOADER_REGISTERS = 32, CONSUMER_REGISTERS = 160;
};
// Beside a wider O they have no registers for 128 scores of a row.
struct Wide192x64 : Wide192 {
    static constexpr int BLOCK_N = 64;
};
// For narrow windows: beside a narrow O and 64 scores they have registers for Q.
struct Narrow192x64 : Wide192x64 {
    static constexpr int K_SLOTS = 6, V_SLOTS = 6;
    static constexpr bool Q_IN_REGISTERS = true, EXACT_OVERLAPS = true;
};
// For decode, whose queries fill few rows: half of the products, and more of the keys on their way.
template <int HEAD_DIM>
struct Decode64x128 : Defaults {
    static constexpr int CONSUMERS = 1, K_SLOTS = HEAD_DIM == 64 ? 6 : 3, V_SLOTS = K_SLOTS;
    static constexpr bool PINGPONG = false;
};

// For codes. 512 threads begin with 128 registers each: two computing warpgroups get 200, too few for Q.
struct Widened128x128 : Wide192 {
    static constexpr int CONSUMERS = 2, K_SLOTS = 2, V_SLOTS = 2, WIDENERS = 1, CODE_SLOTS = 2;
    static constexpr int CONSUMER_REGISTERS = 200, WIDENER_REGISTERS = 72;
};
// For decode, where a tile of codes is there in half of the time: two warpgroups keep up with them.
struct WidenedDecode64x128 : Defaults {
    static constexpr int CONSUMERS = 1, WIDENERS = 2, CODE_SLOTS = 4;
    static constexpr bool PINGPONG = false, SKIPS_ROWS = true;
    static constexpr int LOADER_REGISTERS = 40, CONSUMER_REGISTERS = 240, WIDENER_REGISTERS = 112;
};

} // namespace
