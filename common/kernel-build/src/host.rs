//! The host's C++ compiler, without the flags of the surroundings.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Once;

type Variable = (OsString, OsString);

/// Returns a build in C++ by the compiler that the environment names, and by no flags but those
/// that are added to it. Flags of CXXFLAGS would follow ours and beat them (`-ffast-math`, `-O0`),
/// and kernels of one identity would compute different values. Cargo warns of each flag that is
/// left out.
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

/// The part of the environment that cc may see.
struct Surroundings {
    variables: Vec<Variable>,
    /// The subjects of warnings: `CXXFLAGS is`.
    ignored: Vec<String>,
}

impl Surroundings {
    fn new(variables: impl IntoIterator<Item = Variable>) -> Self {
        let mut kept = Self {
            variables: vec![],
            ignored: vec![],
        };
        for (name, value) in variables {
            kept.add(name, value);
        }
        kept
    }

    /// Keeps a variable, without the flags that it holds.
    fn add(&mut self, name: OsString, value: OsString) {
        let shown = name.to_string_lossy().into_owned();
        if is_for("CXXFLAGS", &name) {
            if !value.is_empty() {
                self.ignored.push(format!("{shown} is"));
            }
            return;
        }
        if is_for("CXX", &name)
            && let Some(compiler) = without_flags(&value)
        {
            self.ignored.push(format!("the flags in {shown} are"));
            self.variables.push((name, compiler.into()));
            return;
        }
        self.variables.push((name, value));
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

/// Returns whether cc reads `name` in place of the variable `base`: HOST_CXX,
/// CXX_x86_64_unknown_linux_gnu.
fn is_for(base: &str, name: &OsStr) -> bool {
    let Some(text) = name.to_str() else {
        return false;
    };
    let plain = text
        .strip_prefix("HOST_")
        .or_else(|| text.strip_prefix("TARGET_"))
        .unwrap_or(text);
    let suffix = text.strip_prefix(base);
    plain == base || suffix.is_some_and(|target| target.starts_with('_'))
}

/// Returns the compiler of `g++ -O0`, with a launcher before it (`ccache g++`); `None` if it has no
/// flags.
fn without_flags(compiler: &OsStr) -> Option<String> {
    let text = compiler.to_str()?;
    if Path::new(text).exists() {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let first_flag = words.iter().position(|word| word.starts_with('-'))?;
    Some(words[..first_flag].join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(set: &[(&str, &str)]) -> Surroundings {
        let mut variables: Vec<Variable> = std::env::vars_os().collect();
        variables.retain(|(name, _)| {
            !is_for("CXX", name) && !is_for("CXXFLAGS", name) && name != "CARGO_ENCODED_RUSTFLAGS"
        });
        for (name, value) in set {
            variables.push((name.into(), value.into()));
        }
        Surroundings::new(variables)
    }

    /// Returns the preprocessor's definitions about fast mathematics, optimisation and the
    /// processor, with the compiler and flags that a kernel would get.
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
        let mut definitions = Vec::new();
        for line in text.lines() {
            let name = line.split(' ').nth(1).unwrap();
            if names.contains(&name) {
                definitions.push(line.to_string());
            }
        }
        definitions.sort();
        definitions
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
            let seen = surroundings(&[(name, value)]);
            let variable = seen.variables.iter().find(|(other, _)| other == name);
            assert_eq!(
                variable.map(|(_, text)| text.to_str().unwrap()),
                kept,
                "{name}={value}"
            );
            assert_eq!(seen.ignored, ignored, "{name}={value}");
        }
    }
}
