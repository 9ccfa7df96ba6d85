//! The state of the GPU around a measurement, through NVML, as far as a machine has it. Nothing is
//! ever set.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper::{Device, Nvml};

/// The state of a GPU at one moment. What this GPU or container does not report is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    pub sm_mhz: Option<u32>,
    /// Power now, in watts. The older call returns the mean of a second, most of which may be idle.
    pub power_w: Option<f64>,
    pub celsius: Option<u32>,
    /// The limit that the GPU keeps to, in watts.
    pub power_limit_w: Option<f64>,
}

fn power_w(device: &Device<'_>) -> Option<f64> {
    let read = device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)]);
    let sample = read.ok()?.pop()?.ok()?.value.ok()?;
    match sample {
        SampleValue::U32(milliwatts) => Some(f64::from(milliwatts) / 1e3),
        SampleValue::U64(milliwatts) => Some(milliwatts as f64 / 1e3),
        SampleValue::F64(_) | SampleValue::I64(_) => None,
    }
}

fn watts(milliwatts: Result<u32, NvmlError>) -> Option<f64> {
    Some(f64::from(milliwatts.ok()?) / 1e3)
}

/// A GPU whose state can be read.
#[derive(Debug)]
pub struct Telemetry {
    library: Nvml,
    uuid: String,
}

impl Telemetry {
    /// Opens the GPU with the UUID of [`crate::device::cuda::DeviceInfo::uuid`].
    pub fn open(uuid: &str) -> Result<Self, NvmlError> {
        let telemetry = Self {
            library: Nvml::init()?,
            uuid: uuid.to_string(),
        };
        telemetry.device()?;
        Ok(telemetry)
    }

    pub fn driver_version(&self) -> Option<String> {
        self.library.sys_driver_version().ok()
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        self.library.device_by_uuid(self.uuid.as_str())
    }

    pub fn read(&self) -> Reading {
        let Ok(device) = self.device() else {
            return Reading::default();
        };
        Reading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            power_w: power_w(&device),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            power_limit_w: watts(device.enforced_power_limit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_not_read() {
        assert!(Telemetry::open("GPU-00000000-0000-0000-0000-000000000000").is_err());
    }
}
