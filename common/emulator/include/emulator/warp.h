// Warp-wide operations. Each lane brings an operand on its own stack, and waits until all lanes of the mask have come; the
// last one executes the operation for all.
#pragma once

EMULATOR_BEGIN

namespace emulator {

template <class Operand>
__forceinline__ void collective(const char *name, EmulatorExecute execute, Operand &operand, uint32_t mask,
                                uint64_t agree0, uint64_t agree1, uint64_t work, uint32_t rules, EmulatorKind kind,
                                EmulatorSite site) {
    EmulatorCollective call{name, execute, &operand, {agree0, agree1}, work, mask, rules, kind, site};
    emulator_collective(emulator_current, &call);
}

struct ShuffleOperand {
    uint64_t value; // in: this lane's; out: the source lane's
    int argument;   // source lane, delta or lane mask
    int width;
};

// The source lane by the rules of PTX `shfl`: lanes are grouped in segments of `width`; a source outside keeps the lane's
// own value.
struct ShuffleIndexed {
    static int source(int lane, int argument, int width) { return (lane & ~(width - 1)) | (argument & (width - 1)); }
};
struct ShuffleXor {
    static int source(int lane, int argument, int width) {
        int source = lane ^ argument;
        return source > (lane | (width - 1)) ? lane : source;
    }
};

template <class Rule>
const char *shuffle(void *const *operands, uint32_t lanes, uint32_t *at_fault) {
    uint64_t values[32];
    for (int lane = 0; lane < 32; ++lane)
        if (lanes >> lane & 1) values[lane] = static_cast<ShuffleOperand *>(operands[lane])->value;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(lanes >> lane & 1)) continue;
        auto *operand = static_cast<ShuffleOperand *>(operands[lane]);
        int source = Rule::source(lane, operand->argument, operand->width);
        if (source < 0 || source > 31 || !(lanes >> source & 1)) {
            *at_fault = lane;
            return "it reads from a lane that takes no part in the shuffle (not in the mask, or exited)";
        }
        operand->value = values[source];
    }
    return nullptr;
}

template <class Rule, class T>
__forceinline__ T shuffle(const char *name, uint32_t mask, T value, int argument, int width, EmulatorSite site) {
    static_assert(std::is_trivially_copy_constructible<T>::value && sizeof(T) <= 8);
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) trap("a shuffle's width must be 1, 2, 4, 8, 16 or 32", site);
    ShuffleOperand operand{0, argument, width};
    memcpy(&operand.value, &value, sizeof value);
    collective(name, shuffle<Rule>, operand, mask, width, sizeof(T), 0, EMULATOR_EXITED_LANES_DROP, EMULATOR_SHUFFLE, site);
    memcpy(static_cast<void *>(&value), &operand.value, sizeof value);
    return value;
}

struct VoteOperand {
    bool predicate;
    uint32_t ballot;
};

inline const char *vote(void *const *operands, uint32_t lanes, uint32_t *) {
    uint32_t ballot = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (lanes >> lane & 1) ballot |= uint32_t(static_cast<VoteOperand *>(operands[lane])->predicate) << lane;
    for (int lane = 0; lane < 32; ++lane)
        if (lanes >> lane & 1) static_cast<VoteOperand *>(operands[lane])->ballot = ballot;
    return nullptr;
}

// `kind` keeps the votes apart, which share their execution.
__forceinline__ uint32_t ballot(const char *name, int kind, uint32_t mask, bool predicate, EmulatorSite site) {
    VoteOperand operand{predicate, 0};
    collective(name, vote, operand, mask, kind, 0, 0, EMULATOR_EXITED_LANES_DROP, EMULATOR_VOTE, site);
    return operand.ballot;
}

} // namespace emulator

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32, EMULATOR_HERE) {
    return emulator::shuffle<emulator::ShuffleIndexed>("__shfl_sync", mask, value, source_lane, width, EMULATOR_SITE);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMULATOR_HERE) {
    return emulator::shuffle<emulator::ShuffleXor>("__shfl_xor_sync", mask, value, lane_mask, width, EMULATOR_SITE);
}

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_HERE) {
    return emulator::ballot("__ballot_sync", 0, mask, predicate != 0, EMULATOR_SITE);
}
__forceinline__ int __any_sync(unsigned mask, int predicate, EMULATOR_HERE) {
    return emulator::ballot("__any_sync", 1, mask, predicate != 0, EMULATOR_SITE) != 0;
}

__forceinline__ void __syncwarp(unsigned mask = 0xffffffff, EMULATOR_HERE) {
    EmulatorCollective call{"__syncwarp", nullptr, nullptr, {0, 0}, 0, mask,
                            EMULATOR_EXITED_LANES_DROP | EMULATOR_PLACES_MAY_DIFFER, EMULATOR_SYNC_WARP, EMULATOR_SITE};
    emulator_collective(emulator_current, &call);
}

EMULATOR_END
