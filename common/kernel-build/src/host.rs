//! The host's C++ compiler, without the flags of the surroundings.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Once;

type Variable = (OsString, OsString);

/// Returns a build in C++ by the compiler that the environment names, and by no flags but those that
/// are added to it. Flags of CXXFLAGS would follow ours and beat them (`-ffast-math`, `-O0`), and
/// kernels of one identity would compute different values. What is left out is a warning of cargo.
pub fn host_build() -> cc::Build {
    let surroundings = Surroundings::new(std::env::vars_os());
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        for what in &surroundings.ignored {
            println!(
                "cargo:warning={what} ignored: what the emulator runs is compiled by fixed flags"
            );
        }
    });
    surroundings.build()
}

/// What cc may see of the environment.
struct Surroundings {
    variables: Vec<Variable>,
    /// `CXXFLAGS is`
    ignored: Vec<String>,
}

impl Surroundings {
    fn new(variables: impl IntoIterator<Item = Variable>) -> Self {
        let mut kept = Self {
            variables: vec![],
            ignored: vec![],
        };
        for (name, value) in variables {
            let shown = name.to_string_lossy().into_owned();
            if is_for("CXXFLAGS", &name) {
                if !value.is_empty() {
                    kept.ignored.push(format!("{shown} is"));
                }
            } else if let Some(compiler) = is_for("CXX", &name)
                .then(|| without_flags(&value))
                .flatten()
            {
                kept.ignored.push(format!("the flags in {shown} are"));
                kept.variables.push((name, compiler.into()));
            } else {
                kept.variables.push((name, value));
            }
        }
        kept
    }

    fn build(&self) -> cc::Build {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            // RUSTFLAGS=-Ctarget-cpu=native would be -march=native.
            .inherit_rustflags(false)
            .set_envs_snapshot(self.variables.iter().map(|(name, value)| (name, value)));
        build
    }
}

/// Whether cc reads `name` in place of the variable `base`: HOST_CXX, CXX_x86_64_unknown_linux_gnu.
fn is_for(base: &str, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let plain = name
        .strip_prefix("HOST_")
        .or_else(|| name.strip_prefix("TARGET_"));
    plain.unwrap_or(name) == base
        || name
            .strip_prefix(base)
            .is_some_and(|target| target.starts_with('_'))
}

/// The compiler of `g++ -O0`, with a launcher before it (`ccache g++`); `None` if it has no flags.
fn without_flags(compiler: &OsStr) -> Option<String> {
    let text = compiler.to_str().filter(|text| !Path::new(text).exists())?;
    let is_flag = |word: &&str| word.starts_with('-');
    text.split_whitespace().any(|word| is_flag(&word)).then(|| {
        let words = text.split_whitespace().take_while(|word| !is_flag(word));
        words.collect::<Vec<_>>().join(" ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(set: &[(&str, &str)]) -> Surroundings {
        let set = set
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let inherited = std::env::vars_os().filter(|(name, _)| {
            !is_for("CXX", name) && !is_for("CXXFLAGS", name) && name != "CARGO_ENCODED_RUSTFLAGS"
        });
        Surroundings::new(inherited.chain(set))
    }

    /// What the preprocessor defines of fast mathematics, optimisation and the processor, by the
    /// compiler and flags that a kernel would get.
    fn defined(set: &[(&str, &str)]) -> Vec<String> {
        let target = "x86_64-unknown-linux-gnu";
        let tool = surroundings(set)
            .build()
            .cargo_metadata(false)
            .target(target)
            .host(target)
            .opt_level(2)
            .get_compiler();
        let output = tool
            .to_command()
            .args(["-dM", "-E", "-x", "c++", "/dev/null"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let names = [
            "__FAST_MATH__",
            "__OPTIMIZE__",
            "__AVX__",
            "NDEBUG",
            "__FINITE_MATH_ONLY__",
        ];
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.lines().filter(|line| {
            let name = line.split(' ').nth(1);
            names.iter().any(|wanted| name == Some(wanted))
        });
        let mut found: Vec<String> = found.map(String::from).collect();
        found.sort();
        found
    }

    #[test]
    fn flags_of_the_surroundings_reach_no_kernel() {
        let plain = ["#define __FINITE_MATH_ONLY__ 0", "#define __OPTIMIZE__ 1"];
        assert_eq!(defined(&[]), plain);
        let flags = "-ffast-math -O0 -mavx -DNDEBUG";
        for name in [
            "CXXFLAGS",
            "HOST_CXXFLAGS",
            "TARGET_CXXFLAGS",
            "CXXFLAGS_x86_64_unknown_linux_gnu",
            "CXXFLAGS_x86_64-unknown-linux-gnu",
        ] {
            assert_eq!(defined(&[(name, flags)]), plain, "{name}");
        }
        for name in ["CXX", "HOST_CXX", "CXX_x86_64_unknown_linux_gnu"] {
            let compiler = format!("c++ {flags}");
            assert_eq!(defined(&[(name, &compiler)]), plain, "{name}");
        }
        let rust = [("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=native")];
        assert_eq!(defined(&rust), plain, "RUSTFLAGS");
    }

    #[test]
    fn what_is_ignored_is_named_and_the_compiler_stays() {
        for (name, value, kept, ignored) in [
            ("CXXFLAGS", "-O0", None, &["CXXFLAGS is"][..]),
            ("CXXFLAGS", "", None, &[]),
            ("HOST_CXXFLAGS", "-g", None, &["HOST_CXXFLAGS is"]),
            ("CXX", "g++-12", Some("g++-12"), &[]),
            ("CXX", "ccache g++", Some("ccache g++"), &[]),
            (
                "CXX",
                "ccache g++ -O0 -g",
                Some("ccache g++"),
                &["the flags in CXX are"],
            ),
            // Not C++'s, and not cc's.
            ("CFLAGS", "-O0", Some("-O0"), &[]),
            ("LIBFOO_CXXFLAGS", "-O0", Some("-O0"), &[]),
        ] {
            let set = surroundings(&[(name, value)]);
            let found = set.variables.iter().find(|(other, _)| other == name);
            let found = found.map(|(_, value)| value.to_str().unwrap());
            assert_eq!(found, kept, "{name}={value}");
            assert_eq!(set.ignored, ignored, "{name}={value}");
        }
    }
}
