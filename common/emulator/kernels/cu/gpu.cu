// Kernels that also run on a GPU.
#include "ptx.cu"
#include "tma.cu"
#include "wgmma.cu"
#include "cluster.cu"
namespace { // some of its breaks have the names of tma.cu's
namespace by_threads {
#include "mbarrier.cu"
}
} // namespace
