// The emulated side of <attn/observe.cuh>: the traced build tells the scheduler, if it asks; the plain build has none of it.
#pragma once

#ifndef EMULATOR_TRACED
#define ATTN_PLACES(name, batch, head, row, index)
#define ATTN_OBSERVE(what, places, tile, values)
#else

#define ATTN_PLACES(name, batch, head, row, index)                                                                     \
    const auto name = [&]([[maybe_unused]] int i) { return attn::Place{{batch, head, row}, index}; }
#define ATTN_OBSERVE(what, places, tile, values) attn::observe(attn::Seen::what, places, tile, values)

namespace attn {

enum class Seen { SCORES, STATE, LANE_STATE, PROBABILITIES, RESCALED, OUTPUT };

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

} // namespace attn

#endif
