// As the plain header has it. Without notes: shared_address, no instruction of its own.
#pragma once

#include_next <attn/ptx/shared_address.cuh>
