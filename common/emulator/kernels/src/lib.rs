//! One small kernel per primitive, and broken counterparts: what the emulator is tested on.
//!
//! The kernels are in `cu/`, the expectations in `tests/`.

use std::ffi::c_void;

/// `KernelParams` in `cu/kernel.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    pub input: [*const c_void; 3],
    pub output: [*mut c_void; 2],
    pub numbers: [i32; 4],
}

include!(concat!(env!("OUT_DIR"), "/gpu.rs"));

macro_rules! kernels {
    ($($name:ident)*) => {
        mod entry {
            use std::ffi::c_void;

            #[link(name = "emulator_kernels", kind = "static")]
            unsafe extern "C-unwind" {
                $(pub fn $name(params: *const c_void);)*
            }
        }

        mod traced {
            use std::ffi::c_void;

            #[link(name = "emulator_kernels_traced", kind = "static")]
            unsafe extern "C-unwind" {
                $(
                    #[link_name = concat!("traced_", stringify!($name))]
                    pub fn $name(params: *const c_void);
                )*
            }
        }

        /// Plain and traced entry, by name.
        pub const KERNELS: &[(&str, [emulator::Entry; 2])] =
            &[$((stringify!($name), [entry::$name, traced::$name])),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
