//! The limits of a device: the GPU at hand, or a smaller one that a run is limited to.

use crate::resources::{ARCHITECTURES, KernelFacts, multiprocessor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The variable that limits benchmarks, stage tests and `compare run`: `ATTENTION_DEVICE=sm_89`.
pub const DEVICE_VARIABLE: &str = "ATTENTION_DEVICE";

/// The least compute capability times ten, that of the first GPUs with the instructions of every
/// stage: cp.async, and `mma` of BF16.
const LEAST_CAPABILITY: u32 = 80;

/// The compute capability times ten from which there are clusters.
const CLUSTERS: u32 = 90;

/// The limits that decide which kernels a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// The compute capability times ten: 89.
    pub capability: u32,
    pub shared_opt_in_bytes: usize,
}

/// A need of a kernel that a device does not meet, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub needed: String,
    pub available: String,
}

/// A reason why a device cannot stand for another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "there is no device '{text}' (--device, {DEVICE_VARIABLE}); known: {}",
        ARCHITECTURES.map(|(arch, _)| arch).join(", ")
    )]
    Unknown { text: String },
    /// A device whose code would fail on this GPU.
    #[error(
        "{asked} offers more than this GPU, an {gpu}; --device and {DEVICE_VARIABLE} take a \
         smaller one"
    )]
    Larger {
        asked: DeviceLimits,
        /// The GPU at hand.
        gpu: DeviceLimits,
    },
}

impl fmt::Display for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.capability)
    }
}

impl FromStr for DeviceLimits {
    type Err = DeviceError;

    /// Reads `sm_89`; the suffix of `sm_90a` does not change limits.
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let arch = text.trim_end_matches(['a', 'f']);
        let number = arch.trim_start_matches("sm_").parse().ok();
        match (multiprocessor(arch), number) {
            (Some(limits), Some(capability)) => Ok(Self {
                capability,
                shared_opt_in_bytes: limits.shared_opt_in_bytes,
            }),
            _ => Err(DeviceError::Unknown {
                text: text.to_string(),
            }),
        }
    }
}

impl DeviceLimits {
    /// Returns the device that a flag or, without one, the environment asks for.
    pub fn asked(flag: Option<Self>) -> Result<Option<Self>, DeviceError> {
        let value = std::env::var_os(DEVICE_VARIABLE).unwrap_or_default();
        let text = value.to_string_lossy();
        if flag.is_some() || text.is_empty() {
            Ok(flag)
        } else {
            text.parse().map(Some)
        }
    }

    /// Returns the device asked for, no larger than the open GPU, or that GPU.
    pub fn of_launches(
        requested: Option<Self>,
        open: Option<Self>,
    ) -> Result<Option<Self>, DeviceError> {
        if let (Some(asked), Some(gpu)) = (requested, open)
            && asked.is_larger_than(&gpu)
        {
            return Err(DeviceError::Larger { asked, gpu });
        }
        Ok(requested.or(open))
    }

    fn is_larger_than(&self, gpu: &Self) -> bool {
        self.capability > gpu.capability || self.shared_opt_in_bytes > gpu.shared_opt_in_bytes
    }

    /// Returns whether code for `arch` runs on it: `sm_90a` on compute capability 9.0 alone.
    pub fn is(&self, arch: &str) -> bool {
        arch.trim_start_matches("sm_").trim_end_matches('a').parse() == Ok(self.capability)
    }

    /// Returns what the device lacks for `kernel`; `None` where it runs.
    pub fn shortfall(&self, kernel: &KernelFacts) -> Option<Shortfall> {
        if self.capability < LEAST_CAPABILITY {
            return Some(Shortfall {
                needed: capability_words(LEAST_CAPABILITY),
                available: capability_words(self.capability),
            });
        }
        if kernel.cluster > 1 && self.capability < CLUSTERS {
            let blocks = kernel.cluster;
            let least = capability_words(CLUSTERS);
            return Some(Shortfall {
                needed: format!("clusters of {blocks} blocks ({least})"),
                available: capability_words(self.capability),
            });
        }
        let needed_bytes = kernel.dynamic_shared_bytes;
        if needed_bytes <= self.shared_opt_in_bytes {
            return None;
        }
        Some(Shortfall {
            needed: format!("{needed_bytes} bytes of shared memory"),
            available: format!("{} ({self})", self.shared_opt_in_bytes),
        })
    }
}

fn capability_words(capability: u32) -> String {
    format!("compute capability {}.{}", capability / 10, capability % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probability::Probability;
    use crate::problem::Dtype;

    fn device(text: &str) -> DeviceLimits {
        text.parse().unwrap()
    }

    #[test]
    fn every_architecture_of_the_table_is_a_device_and_nothing_else_is() {
        for (arch, _) in ARCHITECTURES {
            assert_eq!(device(arch).to_string(), arch);
        }
        assert_eq!(
            device("sm_89"),
            DeviceLimits {
                capability: 89,
                shared_opt_in_bytes: 99 << 10
            }
        );
        assert_eq!(
            (device("sm_90a"), device("sm_120f")),
            (device("sm_90"), device("sm_120"))
        );
        assert!(device("sm_90").is("sm_90a") && !device("sm_100").is("sm_90a"));
        for text in ["sm_42", "l4", "", "89", "sm_", "sm_sm_89", "SM_89"] {
            let error = text.parse::<DeviceLimits>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("there is no device '{text}'")),
                "{error}"
            );
            assert!(error.ends_with(
                "known: sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_120, sm_121"
            ));
        }
    }

    #[test]
    fn a_gpu_limits_what_may_be_asked_for() {
        let limited = DeviceLimits::of_launches;
        let [sm_80, sm_89, sm_90] = ["sm_80", "sm_89", "sm_90"].map(|name| Some(device(name)));
        assert_eq!(limited(None, None), Ok(None));
        assert_eq!(limited(sm_89, None), Ok(sm_89));
        assert_eq!(limited(None, sm_90), Ok(sm_90));
        assert_eq!(limited(sm_89, sm_90), Ok(sm_89));
        assert_eq!(limited(sm_90, sm_90), Ok(sm_90));
        // Newer, and older with more shared memory.
        for asked in [sm_90, sm_80] {
            let error = limited(asked, sm_89).unwrap_err().to_string();
            assert!(
                error.contains("offers more than this GPU, an sm_89"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_newer_device_is_refused_though_it_has_no_more_shared_memory() {
        let [sm_86, sm_89] = ["sm_86", "sm_89"].map(device);
        assert_eq!(sm_86.shared_opt_in_bytes, sm_89.shared_opt_in_bytes);
        let refused = DeviceLimits::of_launches(Some(sm_89), Some(sm_86));
        let larger = DeviceError::Larger {
            asked: sm_89,
            gpu: sm_86,
        };
        assert_eq!(refused, Err(larger));
    }

    #[test]
    fn clusters_and_large_blocks_are_refused_where_a_device_lacks_them() {
        let kernel = KernelFacts {
            symbol: "cluster_64x256_f16_d64".into(),
            dtype: Dtype::F16,
            head_dim: 64,
            block_m: 32,
            block_n: 128,
            threads: 128,
            min_blocks: 1,
            dynamic_shared_bytes: 100 << 10,
            boxes: None,
            cluster: 2,
            caps: None,
            lse: false,
            probability: Probability::F16,
        };
        let shortfall = |needed: &str, available: &str| {
            Some(Shortfall {
                needed: needed.to_string(),
                available: available.to_string(),
            })
        };
        assert_eq!(device("sm_90").shortfall(&kernel), None);
        let needed = "clusters of 2 blocks (compute capability 9.0)";
        assert_eq!(
            device("sm_89").shortfall(&kernel),
            shortfall(needed, "compute capability 8.9")
        );
        let alone = KernelFacts {
            cluster: 1,
            ..kernel
        };
        assert_eq!(
            device("sm_89").shortfall(&alone),
            shortfall("102400 bytes of shared memory", "101376 (sm_89)")
        );
        let fits = KernelFacts {
            dynamic_shared_bytes: 99 << 10,
            ..alone
        };
        assert_eq!(device("sm_89").shortfall(&fits), None);
        let of_capability = |capability| DeviceLimits {
            capability,
            shared_opt_in_bytes: 99 << 10,
        };
        assert_eq!(of_capability(80).shortfall(&fits), None);
        assert_eq!(
            of_capability(75).shortfall(&fits),
            shortfall("compute capability 8.0", "compute capability 7.5")
        );
    }
}
