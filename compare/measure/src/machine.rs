//! The machine and the time of a run.

use common::device::cuda::DeviceInfo;
use results::judge::list::joined;
use results::table::session::{Gpu, Machine};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the number of threads that the machine runs at a time.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Returns the machine, with its GPU or why there is none.
pub fn machine(device: Result<&DeviceInfo, String>) -> Machine {
    let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let gpu = match device {
        Ok(info) => Gpu::Present {
            name: info.name.clone(),
            uuid: info.uuid.clone(),
            arch: format!(
                "sm_{}{}",
                info.compute_capability.0, info.compute_capability.1
            ),
            driver: info.driver_version.clone().unwrap_or_else(|| {
                format!(
                    "for CUDA {}.{}, version not readable",
                    info.cuda_version.0, info.cuda_version.1
                )
            }),
            multiprocessors: info.sms,
        },
        Err(reason) => Gpu::Absent { reason },
    };
    Machine {
        name: folder_name(gpu.name().unwrap_or(&platform)),
        platform,
        gpu,
    }
}

/// Returns a text in lower case, with hyphens between words: `NVIDIA H200` becomes `nvidia-h200`.
fn folder_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    joined(words.filter(|word| !word.is_empty()), "-").to_ascii_lowercase()
}

/// Returns the time in seconds since 1970.
pub fn now() -> u64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since_epoch) => since_epoch.as_secs(),
        Err(_) => 0,
    }
}

/// Writes a time in UTC as the names of folders begin with it: `20261120T183000Z`. Days to civil
/// date after Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil and
/// its inverse.
pub fn compact(time: u64) -> String {
    let (days, seconds) = (time / 86_400, time % 86_400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_utc() {
        assert_eq!(compact(0), "19700101T000000Z");
        assert_eq!(compact(951_827_696), "20000229T123456Z");
        assert_eq!(compact(1_767_225_599), "20251231T235959Z");
        assert_eq!(compact(1_767_225_600), "20260101T000000Z");
    }

    #[test]
    fn names_hold_no_space() {
        assert_eq!(
            folder_name("NVIDIA H100 80GB HBM3"),
            "nvidia-h100-80gb-hbm3"
        );
    }
}
