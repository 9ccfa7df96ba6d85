// As the plain header has it. Without notes: pack_finite, a conversion.
#pragma once

#include_next <attn/ptx/cvt_finite.cuh>
