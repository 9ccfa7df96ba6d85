//! The state of the GPU around a measurement, read through NVML. Optional: without the library or the right to read, a
//! record says why it has none. Nothing is ever set.

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlClockType_enum_NVML_CLOCK_MEM, nvmlClockType_enum_NVML_CLOCK_SM, nvmlDevice_t,
    nvmlReturn_enum_NVML_SUCCESS, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU,
};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong};
use std::fmt;

/// What was read, or why nothing was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Conditions {
    /// NVML answered.
    Read(Reading),
    /// It did not.
    Absent {
        /// Why: no library, no permission, not in a container.
        reason: String,
    },
}

/// One reading. A field that this GPU or this container does not report is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Clock of the multiprocessors, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    /// Clock of the device memory, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<u32>,
    /// Power of the board, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Temperature of the GPU, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// What holds the clocks down, by name; an empty list means nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
}

/// NVML's clock event reasons, as `nvml.h` numbers them.
const REASONS: [(u64, &str); 9] = [
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
];

/// The names of the reasons in `mask`; bits without a name are given as numbers.
fn throttle_names(mask: u64) -> Vec<String> {
    let mut names: Vec<String> =
        REASONS.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| name.to_string()).collect();
    let unknown = REASONS.iter().fold(mask, |rest, (bit, _)| rest & !bit);
    if unknown != 0 {
        names.push(format!("unknown_{unknown:#x}"));
    }
    names
}

/// A handle on one GPU through NVML.
pub struct Telemetry {
    library: NvmlLib,
    device: nvmlDevice_t,
}

// SAFETY: NVML is thread-safe ("the API is thread-safe: functions can be called simultaneously from multiple threads",
// NVML API reference, "Multi-threading"), and the handle is a plain value that stays valid until nvmlShutdown in `drop`.
unsafe impl Send for Telemetry {}
// SAFETY: as above.
unsafe impl Sync for Telemetry {}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// Why there is no telemetry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// The library is not installed, or not visible in this container.
    #[error("NVML is not available ({reason}); it comes with the NVIDIA driver as libnvidia-ml.so.1")]
    NoLibrary {
        /// What the loader said.
        reason: String,
    },
    /// The library lacks a function or refuses a call.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it said.
        reason: String,
    },
}

/// Calls a function of the library, which is absent in libraries older than the function.
macro_rules! call {
    ($library:expr, $name:ident ( $($argument:expr),* )) => {
        match &$library.$name {
            // SAFETY: the pointer was looked up under this name in libnvidia-ml, whose header gave it this type. Every
            // pointer among the arguments refers to a live local of the type written, or to a NUL-terminated string.
            // The device handle came from the same library, which nvmlInit_v2 has initialised.
            Ok(function) => check($library, stringify!($name), unsafe { function($($argument),*) }),
            Err(error) => Err(TelemetryError::Call { call: stringify!($name), reason: error.to_string() }),
        }
    };
}

impl Telemetry {
    /// Finds the GPU with this UUID, as [`crate::device::cuda::DeviceInfo::uuid`] gives it.
    pub fn open(uuid: &str) -> Result<Self, TelemetryError> {
        let no_library = |error: &dyn fmt::Display| TelemetryError::NoLibrary { reason: error.to_string() };
        // SAFETY: loading runs the initialisers of NVIDIA's library, which have no preconditions.
        let library = unsafe { NvmlLib::new("libnvidia-ml.so.1").or_else(|_| NvmlLib::new("libnvidia-ml.so")) };
        let library = library.map_err(|error| no_library(&error))?;
        let uuid = CString::new(uuid).map_err(|error| no_library(&error))?;
        call!(&library, nvmlInit_v2())?;
        // From here on `drop` balances nvmlInit_v2.
        let mut telemetry = Self { library, device: std::ptr::null_mut() };
        let mut device: nvmlDevice_t = std::ptr::null_mut();
        call!(&telemetry.library, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut device))?;
        telemetry.device = device;
        Ok(telemetry)
    }

    /// The version of the NVIDIA driver, `580.65.06`.
    pub fn driver_version(&self) -> Result<String, TelemetryError> {
        let mut text = [0 as c_char; 96];
        call!(&self.library, nvmlSystemGetDriverVersion(text.as_mut_ptr(), text.len() as c_uint))?;
        // SAFETY: NVML wrote a NUL-terminated string of at most `text.len()` bytes; the array began as zeros.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The state of the GPU now. Takes about a millisecond.
    pub fn read(&self) -> Conditions {
        let (library, device) = (&self.library, self.device);
        let clock = |kind| {
            let mut mhz: c_uint = 0;
            call!(library, nvmlDeviceGetClockInfo(device, kind, &mut mhz)).map(|()| mhz)
        };
        let power = || {
            let mut milliwatts: c_uint = 0;
            call!(library, nvmlDeviceGetPowerUsage(device, &mut milliwatts)).map(|()| f64::from(milliwatts) / 1e3)
        };
        let temperature = || {
            let (sensor, mut celsius) = (nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU, 0 as c_uint);
            call!(library, nvmlDeviceGetTemperature(device, sensor, &mut celsius)).map(|()| celsius)
        };
        let throttle = || {
            let mut mask: c_ulonglong = 0;
            call!(library, nvmlDeviceGetCurrentClocksThrottleReasons(device, &mut mask)).map(|()| throttle_names(mask))
        };
        let sm_clock = clock(nvmlClockType_enum_NVML_CLOCK_SM);
        let reason = sm_clock.as_ref().err().map(ToString::to_string);
        let reading = Reading {
            sm_mhz: sm_clock.ok(),
            memory_mhz: clock(nvmlClockType_enum_NVML_CLOCK_MEM).ok(),
            power_w: power().ok(),
            temperature_c: temperature().ok(),
            throttle: throttle().ok(),
        };
        match reason {
            Some(reason) if reading == Reading::default() => Conditions::Absent { reason },
            _ => Conditions::Read(reading),
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // A failure here leaves a reference count in a library that the process is done with.
        let _ = call!(&self.library, nvmlShutdown());
    }
}

fn check(library: &NvmlLib, call: &'static str, code: c_uint) -> Result<(), TelemetryError> {
    if code == nvmlReturn_enum_NVML_SUCCESS {
        return Ok(());
    }
    let reason = match &library.nvmlErrorString {
        // SAFETY: the function takes any code, and returns a static NUL-terminated string.
        Ok(describe) => unsafe { CStr::from_ptr(describe(code)) }.to_string_lossy().into_owned(),
        Err(_) => format!("code {code}"),
    };
    Err(TelemetryError::Call { call, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_reasons_have_names() {
        assert_eq!(throttle_names(0), Vec::<String>::new());
        assert_eq!(throttle_names(0x1), ["gpu_idle"]);
        assert_eq!(throttle_names(0x4 | 0x40), ["sw_power_cap", "hw_thermal_slowdown"]);
        assert_eq!(throttle_names(0x8 | 0x1000), ["hw_slowdown", "unknown_0x1000"]);
    }

    #[test]
    fn a_machine_without_the_gpu_gets_a_reason() {
        let error = Telemetry::open("GPU-00000000-0000-0000-0000-000000000000").unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
    }

    #[test]
    fn absent_values_stay_absent_in_records() {
        let reading = Reading { sm_mhz: Some(1980), throttle: Some(Vec::new()), ..Reading::default() };
        let json = serde_json::to_string(&Conditions::Read(reading.clone())).unwrap();
        assert_eq!(json, r#"{"status":"read","sm_mhz":1980,"throttle":[]}"#);
        assert_eq!(serde_json::from_str::<Conditions>(&json).unwrap(), Conditions::Read(reading));
        let absent = Conditions::Absent { reason: "no library".to_string() };
        let json = serde_json::to_string(&absent).unwrap();
        assert_eq!(json, r#"{"status":"absent","reason":"no library"}"#);
    }
}
