//! The newest known versions of the packages that peers come from. Who is faster may depend on
//! them, so a package that is older is named.

use std::collections::BTreeMap;

/// The day on which the versions of [`NEWEST`] were looked up.
const LOOKED_UP: &str = "2026-11-28";

/// A package in its newest version.
struct Newest {
    /// The name by which a session records it.
    package: &'static str,
    version: &'static str,
    /// The packages to install by pip.
    wheel: &'static str,
}

const NEWEST: [Newest; 7] = [
    Newest {
        package: "torch",
        version: "2.15.0",
        wheel: "torch",
    },
    Newest {
        package: "triton",
        version: "3.9.0",
        wheel: "triton",
    },
    Newest {
        package: "cudnn",
        version: "9.28.1",
        wheel: "nvidia-cudnn-cu13",
    },
    Newest {
        package: "nvidia-cudnn-frontend",
        version: "1.32.0",
        wheel: "nvidia-cudnn-frontend",
    },
    Newest {
        package: "tokenspeed-fa3",
        version: "3.0.0.post20260810",
        wheel: "tokenspeed-fa3",
    },
    Newest {
        package: "flash-attn-4",
        version: "4.0.0b36",
        wheel: "--pre flash-attn-4",
    },
    // It compiles what is called, by nvcc and ninja.
    Newest {
        package: "flashinfer-python",
        version: "0.7.4",
        wheel: "flashinfer-python",
    },
];

/// Returns a sentence for each package that is older than the newest version known.
pub fn outdated(software: &BTreeMap<String, String>) -> Vec<String> {
    let mut sentences = Vec::new();
    for newest in &NEWEST {
        let Some(installed) = software.get(newest.package) else {
            continue;
        };
        if numbers(installed) < numbers(newest.version) {
            sentences.push(format!(
                "{} {installed} is older than {}, the newest on {LOOKED_UP}: pip install --upgrade {}",
                newest.package, newest.version, newest.wheel
            ));
        }
    }
    sentences
}

/// Returns the command that installs the packages that are not there, if any are missing.
pub fn installation(software: &BTreeMap<String, String>) -> Option<String> {
    let mut command = "pip install".to_string();
    for newest in &NEWEST {
        if !software.contains_key(newest.package) {
            command += &format!(" {}", newest.wheel);
        }
    }
    (command != "pip install").then_some(command)
}

/// Returns the numbers of a version: 4, 0, 0 and 36 of `4.0.0b36`. What follows a `+` names a build.
/// cuDNN gives its version as one number, 91900 for 9.19.0.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split('+').next().unwrap_or_default();
    let parts = release.split(|character: char| !character.is_ascii_digit());
    let numbers: Vec<u64> = parts.filter_map(|part| part.parse().ok()).collect();
    match numbers[..] {
        [number] if number >= 10_000 => vec![number / 10_000, number / 100 % 100, number % 100],
        _ => numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(package: &str, version: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(package.to_string(), version.to_string())])
    }

    #[test]
    fn an_older_package_is_named_with_the_command_that_upgrades_it() {
        assert_eq!(
            outdated(&with("torch", "2.11.0+cu130")),
            [
                "torch 2.11.0+cu130 is older than 2.15.0, the newest on 2026-11-28: \
              pip install --upgrade torch"
            ]
        );
    }

    #[test]
    fn the_newest_package_and_a_newer_one_are_not_named() {
        assert_eq!(outdated(&with("torch", "2.15.0+cu131")), [""; 0]);
        assert_eq!(outdated(&with("torch", "2.15.1")), [""; 0]);
        assert_eq!(outdated(&with("torch", "3.0.0")), [""; 0]);
    }

    #[test]
    fn a_version_is_compared_by_its_numbers_and_not_by_its_letters() {
        assert_eq!(outdated(&with("triton", "3.10.0")), [""; 0]);
        assert_eq!(outdated(&with("triton", "3.6.0")).len(), 1);
        assert_eq!(outdated(&with("flash-attn-4", "4.0.0b36")), [""; 0]);
        assert_eq!(outdated(&with("flash-attn-4", "4.0.0b35")).len(), 1);
        assert_eq!(
            outdated(&with("tokenspeed-fa3", "3.0.0.post20260701")).len(),
            1
        );
    }

    #[test]
    fn the_version_of_cudnn_is_one_number() {
        assert_eq!(numbers("91900"), [9, 19, 0]);
        assert_eq!(outdated(&with("cudnn", "92801")), [""; 0]);
        assert_eq!(outdated(&with("cudnn", "91900")).len(), 1);
    }

    #[test]
    fn what_is_not_installed_is_not_named() {
        assert_eq!(outdated(&with("python", "3.12.3")), [""; 0]);
    }

    #[test]
    fn a_command_installs_what_is_missing_and_nothing_else() {
        let mut software = BTreeMap::new();
        for newest in &NEWEST {
            software.insert(newest.package.to_string(), newest.version.to_string());
        }
        assert_eq!(installation(&software), None);
        software.remove("flashinfer-python");
        software.remove("flash-attn-4");
        assert_eq!(
            installation(&software).unwrap(),
            "pip install --pre flash-attn-4 flashinfer-python"
        );
    }
}
