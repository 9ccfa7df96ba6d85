//! Build-script library: nvcc to fatbin and resource report, host C++ to emulated kernel.
