//! The state of the GPU around a measurement, through NVML. Optional: a record says why it has none. Nothing is ever set.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper::{Device, Nvml};

#[derive(Clone, Debug, PartialEq)]
pub enum Conditions {
    Read(Reading),
    Absent {
        /// No library, no permission, not in a container.
        reason: String,
    },
}

/// What this GPU or container does not report is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub sm_mhz: Option<u32>,
    /// Power now, in watts. The older call gives the mean of a second, most of which may be idle.
    pub power_w: Option<f64>,
    pub celsius: Option<u32>,
}

fn power_w(device: &Device<'_>) -> Option<f64> {
    let read = device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)]);
    let milliwatts = read.ok()?.pop()?.ok()?.value.ok()?;
    match milliwatts {
        SampleValue::U32(milliwatts) => Some(f64::from(milliwatts) / 1e3),
        SampleValue::U64(milliwatts) => Some(milliwatts as f64 / 1e3),
        SampleValue::F64(_) | SampleValue::I64(_) => None,
    }
}

#[derive(Debug)]
pub struct Telemetry {
    library: Nvml,
    uuid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "NVML is not available ({reason}); it comes with the NVIDIA driver as libnvidia-ml.so.1"
    )]
    NoLibrary { reason: String },
    #[error("{call} failed: {reason}")]
    Call { call: &'static str, reason: String },
}

impl TelemetryError {
    fn of(call: &'static str) -> impl Fn(NvmlError) -> Self {
        move |error| match error {
            NvmlError::LibloadingError(error) => Self::NoLibrary {
                reason: error.to_string(),
            },
            error => Self::Call {
                call,
                reason: error.to_string(),
            },
        }
    }
}

impl Telemetry {
    /// `uuid` as in [`crate::device::cuda::DeviceInfo::uuid`].
    pub fn open(uuid: &str) -> Result<Self, TelemetryError> {
        let telemetry = Self {
            library: Nvml::init().map_err(TelemetryError::of("nvmlInit_v2"))?,
            uuid: uuid.to_string(),
        };
        telemetry.device()?;
        Ok(telemetry)
    }

    pub fn driver_version(&self) -> Result<String, TelemetryError> {
        self.library
            .sys_driver_version()
            .map_err(TelemetryError::of("nvmlSystemGetDriverVersion"))
    }

    fn device(&self) -> Result<Device<'_>, TelemetryError> {
        self.library
            .device_by_uuid(self.uuid.as_str())
            .map_err(TelemetryError::of("nvmlDeviceGetHandleByUUID"))
    }

    pub fn read(&self) -> Result<Reading, TelemetryError> {
        let device = self.device()?;
        Ok(Reading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            power_w: power_w(&device),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_gpu_gets_a_reason() {
        let error = Telemetry::open("GPU-00000000-0000-0000-0000-000000000000").unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
