// What a kernel shows of its query rows, tile of keys by tile, to those who compare it with the reference step by step
// (`compare explain`). For a GPU it is nothing at all: macros, because a call whose arguments name local variables already
// changes in which order nvcc allocates registers. The emulator's own version of this header records.
#pragma once

// Declares where the elements of an array belong: element i, in the order of memory, to query row `row` of the head, and to the
// key or output column `index`; the last two are expressions in i. Keys are counted from the first of the tile.
#define ATTN_PLACES(name, batch, head, row, index)

// Shows `values`, an array of floats or of structs of floats, after the tile whose first key is `tile`. `what` is one of
//   SCORES         Q·K, not yet scaled, -inf where masked; by key
//   STATE          attn::RowState: maximum of score * scale_log2, and sum of the row's exponentials
//   LANE_STATE     the same, but the sum is that of the lane's keys alone, and the row's that of its lanes
//   PROBABILITIES  exponentials under the maximum; by key
//   RESCALED       the output before the tile's P·V, under the maximum; by column
//   OUTPUT         the output with the tile's P·V, not yet divided by the sum; by column. Parts of one column are added up
#define ATTN_OBSERVE(what, places, tile, values)

// Marks the statements that follow as a step of the algorithm, so that a value which is wrong after it leads to them:
//   MASK         scores of keys that a row does not see become -inf
//   EXPONENTIAL  scores become exponentials, under a maximum that takes them in
//   SUM          their sum is added to the row's
//   RESCALE      the output so far is brought under the new maximum
//   JOIN         the lanes' parts of a row's sum become one
//   MERGE        parts of a row over different keys become one
#define ATTN_STEP(what)

// `keys` is how many keys some row sees.
#define ATTN_VISIBLE(keys)
