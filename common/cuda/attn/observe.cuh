// Exposes a kernel's intermediate values, tile of keys by tile, to `compare explain`. On a GPU it is nothing: macros, because even a
// call whose arguments name local variables changes the order in which nvcc allocates registers. The emulator's own version of this
// header records. These lines stand at the left margin: read past them.
#pragma once

// Declares where the elements of an array belong: element i, in the order of memory, to query row `row` and to the key (of the tile)
// or output column `index`; both are expressions in i.
#define ATTN_PLACES(name, batch, head, row, index)

// Exposes `values`, an array of floats or of structs of floats, after the tile whose first key is `tile`. `what` is one of
//   SCORES         Q·K, not yet scaled, -inf where masked; by key
//   STATE          attn::RowState: maximum of score * scale_log2, and sum of the row's exponentials
//   LANE_STATE     the same, but the sum covers only the lane's keys, and the row's is that of its lanes
//   PROBABILITIES  exponentials under the maximum; by key
//   RESCALED       the output before the tile's P·V, under the maximum; by column
//   OUTPUT         the output with the tile's P·V, not yet divided by the sum; by column. Parts of one column are summed
#define ATTN_OBSERVE(what, places, tile, values)

// Marks the following statements as a step of the algorithm, so that a value that is wrong after it leads to them:
//   MASK         scores of keys that a row does not see become -inf
//   EXPONENTIAL  scores become exponentials, under a maximum that includes them
//   SUM          their sum is added to the row's
//   RESCALE      the output so far is brought under the new maximum
//   JOIN         the lanes' parts of a row's sum are added
//   MERGE        parts of a row over different keys are merged
#define ATTN_STEP(what)

// `keys` is how many keys some row sees.
#define ATTN_VISIBLE(keys)
