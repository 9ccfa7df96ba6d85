"""Writes a Triton kernel as PTX and a launch file, which `compare hazards` judges without a GPU.

    export(kernel, (4, 2), {"x": Buffer("f16", (64, 64)), "y": Buffer("f16", (64, 64), output=True), "n": 64},
           {"BLOCK": 32}, "target/kernel")

needs Triton (`.python/bin/pip install triton`) and neither a GPU nor PyTorch. Run as a program it exports a matrix product:

    .python/bin/python examples/triton_launch.py target/triton
    cargo run -p compare -- hazards target/triton/kernel.ptx --launch target/triton/launch.toml
"""
import dataclasses
import pathlib
import sys

# Of a launch file's types those of Triton.
POINTERS = {"u8": "*u8", "e4m3": "*fp8e4nv", "f16": "*fp16", "bf16": "*bf16", "f32": "*fp32", "i32": "*i32", "i64": "*i64"}
# What Triton passes to every kernel beside its arguments: two pointers to scratch memory, which kernels without any do not read.
SCRATCH = 2


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A tensor in global memory: its type, shape and, for an input, what fills it (see `compare hazards --help`)."""

    type: str
    shape: tuple
    fill: object = None
    output: bool = False

    def lines(self, name):
        lines = ["[[buffer]]", f"name = '{name}'", f"type = '{self.type}'", f"shape = {list(self.shape)}"]
        if self.output:
            lines.append("output = true")
        if self.fill is not None:
            lines.append(f"fill = '{self.fill}'" if isinstance(self.fill, str) else f"fill = {self.fill}")
        return lines


def signature_of(value):
    """Returns Triton's word for the type of an argument."""
    if isinstance(value, Buffer):
        return POINTERS[value.type]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def is_aligned(value):
    """Whether Triton takes the argument as a multiple of 16, as it does in a launch: buffers are, and such integers."""
    return isinstance(value, Buffer) or (isinstance(value, int) and value % 16 == 0)


def argument_lines(name, value):
    if isinstance(value, Buffer):
        return ["[[argument]]", f"buffer = '{name}'"]
    kind = {"fp32": "f32"}.get(signature_of(value), signature_of(value))
    return ["[[argument]]", f"type = '{kind}'", f"value = {value}"]


def launch_text(entry, grid, threads, shared, arguments):
    """Returns the text of a launch file."""
    paragraphs = [
        [f"entry = '{entry}'", f"grid = {list(grid)}", f"block = {threads}", f"dynamic-shared-bytes = {shared}"],
        *(value.lines(name) for name, value in arguments.items() if isinstance(value, Buffer)),
        *(argument_lines(name, value) for name, value in arguments.items()),
        *(["[[argument]]", "type = 'i64'", "value = 0"] for _ in range(SCRATCH)),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def export(kernel, grid, arguments, constants, folder, capability=90, **options):
    """Compiles a `@triton.jit` function and writes kernel.ptx and launch.toml to a folder. `arguments` are those that a launch
    passes, by name and in order, `constants` its `tl.constexpr`; `options` are num_warps, num_stages and their like."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(kernel.arg_names)
    missing = [name for name in names if name not in arguments and name not in constants]
    if missing:
        raise ValueError(f"{kernel.__name__} takes {', '.join(missing)}, too: neither an argument nor a constant")
    values = {name: arguments[name] for name in names if name in arguments}
    signature = {name: "constexpr" if name in constants else signature_of(values[name]) for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, value in values.items() if is_aligned(value)}
    source = ASTSource(kernel, signature, constexprs={(names.index(name),): value for name, value in constants.items()}, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    threads = 32 * compiled.metadata.num_warps
    (folder / "kernel.ptx").write_text(compiled.asm["ptx"])
    (folder / "launch.toml").write_text(
        launch_text(compiled.metadata.name, grid, threads, compiled.metadata.shared, values))
    return folder


def matrix_product():
    """Returns a kernel: c = a·b, a tile of c a block."""
    import triton
    import triton.language as tl

    @triton.jit
    def product(a, b, c, rows, columns, inner, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
        m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, inner, BLOCK_K):
            left = tl.load(a + m[:, None] * inner + start + k[None, :])
            right = tl.load(b + (start + k[:, None]) * columns + n[None, :])
            sums = tl.dot(left, right, sums)
        tl.store(c + m[:, None] * columns + n[None, :], sums.to(tl.float16))

    return product


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: triton_launch.py FOLDER", file=sys.stderr)
        sys.exit(2)
    tensors = {"a": Buffer("f16", (128, 256), "random:1"), "b": Buffer("f16", (256, 128), "random:2"),
               "c": Buffer("f16", (128, 128), output=True)}
    sizes = {"rows": 128, "columns": 128, "inner": 256}
    written = export(matrix_product(), (2, 2), tensors | sizes, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, sys.argv[1],
                     num_warps=4, num_stages=3)
    print(f"cargo run -p compare -- hazards {written}/kernel.ptx --launch {written}/launch.toml")
