// Kernels that also run on a GPU.
#include "ptx.cu"
#include "tma.cu"
#include "wgmma.cu"
#include "cluster.cu"
