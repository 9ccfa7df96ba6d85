//! `examples/triton_launch.py` with a compiler in Triton's place, which gives the PTX that Triton gave.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A `triton` that compiles nothing, refuses what the real one would not know of the product, and
/// returns the committed PTX.
const TRITON: &str = r#"
import types


def jit(function):
    function.arg_names = list(function.__code__.co_varnames[: function.__code__.co_argcount])
    return function


def compile(source, target, options):
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    assert source.signature["a"] == "*fp16" and source.signature["inner"] == "i32"
    assert source.signature["BLOCK_M"] == "constexpr" and source.constexprs[(6,)] == 64
    assert source.attrs[(0,)] == source.attrs[(3,)] == [["tt.divisibility", 16]]
    metadata = types.SimpleNamespace(name="product", shared=SHARED, num_warps=options["num_warps"])
    return types.SimpleNamespace(asm={"ptx": open(PTX).read()}, metadata=metadata)
"#;

const COMPILER: &str = "
class ASTSource:
    def __init__(self, function, signature, constexprs, attrs):
        self.signature, self.constexprs, self.attrs = signature, constexprs, attrs
";

const TARGET: &str = "
class GPUTarget:
    def __init__(self, backend, arch, warp_size):
        self.backend, self.arch, self.warp_size = backend, arch, warp_size
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn kernels() -> PathBuf {
    root().join("common/ptx/tests/kernels")
}

/// Writes the package `triton` to a folder.
fn write_triton(folder: &Path) {
    let package = folder.join("triton");
    fs::create_dir_all(package.join("backends")).unwrap();
    let constants = format!(
        "PTX = {:?}\nSHARED = 49152\n",
        kernels().join("triton_product.ptx")
    );
    for (file, text) in [
        ("__init__.py", constants + TRITON),
        ("language.py", "constexpr = int\n".to_string()),
        ("compiler.py", COMPILER.to_string()),
        ("backends/__init__.py", String::new()),
        ("backends/compiler.py", TARGET.to_string()),
    ] {
        fs::write(package.join(file), text).unwrap();
    }
}

/// Runs the example with such a `triton`.
fn export(folder: &TempDir, arguments: &[&str]) -> Output {
    write_triton(folder.path());
    Command::new("python3")
        .arg(root().join("examples/triton_launch.py"))
        .args(arguments)
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs")
}

#[test]
fn a_kernel_is_written_with_its_launch() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let output = export(&folder, &[out.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for (written, committed) in [
        ("kernel.ptx", "triton_product.ptx"),
        ("launch.toml", "triton_product.toml"),
    ] {
        let expected = fs::read_to_string(kernels().join(committed)).unwrap();
        let made = fs::read_to_string(out.join(written)).unwrap();
        let header = expected
            .lines()
            .take_while(|line| line.starts_with("# Written"));
        let body = expected.lines().skip(header.count());
        assert!(made.lines().eq(body), "{written}: {made}");
    }
}

#[test]
fn a_folder_is_asked_for() {
    let output = export(&TempDir::new().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "));
}
