// As the plain header has it. Without notes: log2_approx, once a row.
#pragma once

#include_next <attn/ptx/lg2.cuh>
