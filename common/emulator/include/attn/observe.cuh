// The emulated side of <attn/observe.cuh>: the traced build tells the scheduler if it asks; the plain build does nothing.
#pragma once

#ifndef EMULATOR_TRACED
#define ATTN_PLACES(name, batch, head, row, index)
#define ATTN_OBSERVE(what, places, tile, values)
#define ATTN_STEP(what)
#define ATTN_VISIBLE(keys)
#else

#define ATTN_PLACES(name, batch, head, row, index)                                                                     \
    const auto name = [&]([[maybe_unused]] int i) { return attn::Place{{batch, head, row}, index}; }
#define ATTN_OBSERVE(what, places, tile, values) attn::observe(attn::Seen::what, places, tile, values)
#define ATTN_STEP(what) attn::step(attn::Step::what)
#define ATTN_VISIBLE(keys) attn::step(attn::Step::VISIBLE, keys)

namespace attn {

enum class Seen { SCORES, STATE, LANE_STATE, PROBABILITIES, RESCALED, OUTPUT };

enum class Step { VISIBLE, MASK, EXPONENTIAL, SUM, RESCALE, JOIN, MERGE };

struct Place {
    int row[3]; // batch, head, query row
    int index;
};

template <class Places, class Values>
__forceinline__ void observe(Seen what, const Places &places, int tile, const Values &values, EMULATOR_HERE) {
    if (!emulator_observes(emulator_current)) return;
    const float *value = reinterpret_cast<const float *>(&values);
    for (int i = 0; i < static_cast<int>(sizeof(values) / sizeof(float)); ++i) {
        const Place place = places(i);
        const EmulatorObserved observed{
            static_cast<uint32_t>(what), {place.row[0], place.row[1], place.row[2]}, tile, place.index, i, value[i]};
        emulator_observe(emulator_current, &observed, EMULATOR_SITE);
    }
}

__forceinline__ void step(Step what, int value = 0, EMULATOR_HERE) {
    if (emulator_observes(emulator_current)) {
        emulator_step(emulator_current, static_cast<uint32_t>(what), value, EMULATOR_SITE);
    }
}

} // namespace attn

#endif
