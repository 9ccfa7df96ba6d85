//! Stage 0: tiled online softmax with scalar P·V, the control of the ladder.
