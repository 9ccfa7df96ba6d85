// What runs on a GPU, too, as one source.
#include "ptx.cu"
#include "tma.cu"
#include "wgmma.cu"
#include "cluster.cu"
