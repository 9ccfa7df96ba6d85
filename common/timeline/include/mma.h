// WMMA: <mma.h> of CUDA, with notes of its products.
#pragma once

#include_next <mma.h>

#include <attn/timeline.cuh>
