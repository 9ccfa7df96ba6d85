//! A functional SIMT emulator that runs CUDA kernels compiled by the host C++ compiler.
