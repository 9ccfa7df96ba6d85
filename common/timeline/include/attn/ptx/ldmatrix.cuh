// As the plain header has it. Without notes: ldmatrix_x4, ldmatrix_x4_trans, ldmatrix_x2, ldmatrix_x2_trans, which run among
// products.
#pragma once

#include_next <attn/ptx/ldmatrix.cuh>
