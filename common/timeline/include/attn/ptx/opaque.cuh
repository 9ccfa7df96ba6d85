// As the plain header has it. Without notes: opaque, no instruction.
#pragma once

#include_next <attn/ptx/opaque.cuh>
