// As the plain header has it: nothing but notes. Where a tile's scores, its state or its output have been computed, a run of products
// or exponentials has ended. Elsewhere nothing: each more end costs registers, and stage 7 has none left.
#pragma once

#include_next <attn/observe.cuh>

#include <attn/timeline.cuh>

#undef ATTN_OBSERVE
#define ATTN_OBSERVE(what, places, tile, values) ATTN_TIMELINE_OBSERVE_##what
#define ATTN_TIMELINE_OBSERVE_SCORES ::attn::timeline::close()
#define ATTN_TIMELINE_OBSERVE_STATE ::attn::timeline::close()
#define ATTN_TIMELINE_OBSERVE_LANE_STATE ::attn::timeline::close()
#define ATTN_TIMELINE_OBSERVE_PROBABILITIES
#define ATTN_TIMELINE_OBSERVE_RESCALED
#define ATTN_TIMELINE_OBSERVE_OUTPUT ::attn::timeline::close()
