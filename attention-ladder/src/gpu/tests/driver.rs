//! Calls on `tests/driver.c`, a driver of two GPUs that does nothing: in which context each launch
//! is, and what it asks for.

use super::super::{Gpu, open};
use crate::call::Checked;
use crate::choice::STAGES;
use crate::failure::{Code, Failure};
use crate::varlen::CheckedVarlen;
use crate::varlen::tests::packed;
use crate::{AttentionLadderCall, AttentionLadderTensor, AttentionLadderVarlenCall};
use common::problem::Problem;
use common::serving::Cache;
use common::stage::{Artifacts, Attention, Kernel, LoadedStage, StageInfo, Unsupported};
use cudarc::driver::sys::{self, CUcontext, CUstream};
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A stage whose GPU code is a word.
struct Coded(&'static dyn Attention, &'static Artifacts);

impl Coded {
    fn load(stage: &'static dyn Attention) -> LoadedStage {
        let artifacts = Box::leak(Box::new(Artifacts {
            fatbin: Some(b"code"),
            ptx: None,
            ..*stage.artifacts()
        }));
        LoadedStage::load(Box::leak(Box::new(Self(stage, artifacts)))).unwrap()
    }
}

impl Attention for Coded {
    fn info(&self) -> &'static StageInfo {
        self.0.info()
    }

    fn artifacts(&self) -> &'static Artifacts {
        self.1
    }

    fn packs_heads(&self, kernel: &Kernel) -> bool {
        self.0.packs_heads(kernel)
    }

    fn deals_rows(&self, kernel: &Kernel) -> bool {
        self.0.deals_rows(kernel)
    }

    fn is_persistent(&self, kernel: &Kernel) -> bool {
        self.0.is_persistent(kernel)
    }

    fn serves(&self, kernel: &Kernel) -> bool {
        self.0.serves(kernel)
    }

    fn cache(&self, kernel: &Kernel) -> Option<Cache> {
        self.0.cache(kernel)
    }

    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        self.0.grid(kernel, problem)
    }

    fn accepts(&self, kernel: &Kernel, problem: &Problem) -> Result<(), Unsupported> {
        self.0.accepts(kernel, problem)
    }
}

/// The driver, for one test at a time, on whose thread no context is current.
struct Driver {
    library: &'static Library,
    _turn: MutexGuard<'static, ()>,
}

impl Driver {
    fn take() -> Self {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = Self {
            library: LIBRARY.get_or_init(build),
            _turn: turn,
        };
        driver.log();
        driver
    }

    fn symbol<T>(&self, name: &str) -> Symbol<'static, T> {
        // SAFETY: the callers' types are those of driver.c.
        unsafe { self.library.get(name) }.unwrap()
    }

    fn primary(&self, device: c_int) -> CUcontext {
        let primary = self.symbol::<unsafe extern "C" fn(c_int) -> CUcontext>("driver_primary");
        // SAFETY: the driver has two devices.
        unsafe { primary(device) }
    }

    fn context(&self, name: &str, device: c_int, is_green: bool) -> CUcontext {
        type Make = unsafe extern "C" fn(*const c_char, c_int, c_int) -> CUcontext;
        let c_name = CString::new(name).unwrap();
        // SAFETY: the name is copied.
        unsafe {
            self.symbol::<Make>("driver_make_context")(c_name.as_ptr(), device, is_green.into())
        }
    }

    fn stream(&self, context: CUcontext) -> CUstream {
        type Make = unsafe extern "C" fn(CUcontext) -> CUstream;
        // SAFETY: the context is the driver's.
        unsafe { self.symbol::<Make>("driver_make_stream")(context) }
    }

    fn destroy(&self, context: CUcontext) {
        // SAFETY: the context is the driver's.
        unsafe { self.symbol::<unsafe extern "C" fn(CUcontext)>("driver_destroy")(context) }
    }

    fn fail_next_launch(&self) {
        // SAFETY: sets a number.
        unsafe { self.symbol::<unsafe extern "C" fn(c_int)>("driver_fail_launches")(1) }
    }

    fn capture(&self, is_on: bool) {
        // SAFETY: sets a number.
        unsafe { self.symbol::<unsafe extern "C" fn(c_int)>("driver_capture")(is_on.into()) }
    }

    fn text(&self, name: &str) -> String {
        // SAFETY: the string is valid until the next call on this thread.
        let text = unsafe { CStr::from_ptr(self.symbol::<Text>(name)()) };
        text.to_str().unwrap().into()
    }

    /// Returns the contexts of this thread, the current one last.
    fn stack(&self) -> String {
        self.text("driver_stack")
    }

    /// Returns the calls since the last time.
    fn log(&self) -> Vec<String> {
        self.text("driver_log").lines().map(Into::into).collect()
    }

    /// Returns the blocks of the last launch.
    fn grid(&self) -> [u32; 3] {
        type Grid = unsafe extern "C" fn() -> *const [u32; 3];
        // SAFETY: the driver keeps three numbers.
        unsafe { *self.symbol::<Grid>("driver_grid")() }
    }

    /// Runs `work` while `context` is current.
    fn within<T>(&self, context: CUcontext, work: impl FnOnce() -> T) -> T {
        // SAFETY: the context is the driver's.
        unsafe { sys::cuCtxPushCurrent_v2(context) }
            .result()
            .unwrap();
        self.log();
        let result = work();
        let mut popped = null_mut();
        // SAFETY: writes one handle.
        unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }
            .result()
            .unwrap();
        assert_eq!(popped, context, "the stack is as it was");
        result
    }
}

type Text = unsafe extern "C" fn() -> *const c_char;

/// Loads the driver under the name that cudarc looks for first, so that it finds this one on any
/// machine.
fn build() -> Library {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver.c");
    let compilation = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
        ])
        .args(["-Wl,-soname,libcuda.so", "-pthread", "-o"])
        .args([&path, &source])
        .output()
        .expect("the C compiler starts");
    assert!(
        compilation.status.success(),
        "{}",
        String::from_utf8_lossy(&compilation.stderr)
    );
    // SAFETY: it has no initialisers.
    unsafe { Library::new(&path) }.unwrap()
}

fn gpu(ordinal: usize) -> Gpu {
    let stages = STAGES.iter().copied().map(Coded::load).collect();
    open(ordinal, stages, Coded::load(&stage14_served::Served)).unwrap()
}

/// Returns a call of 512 rows of 64 columns.
fn call(heads: i32) -> Checked {
    let tensor = |address: usize| AttentionLadderTensor {
        data: address as *mut _,
        scales: null(),
        batch_stride: i64::from(heads) * 512 * 64,
        head_stride: 512 * 64,
        row_stride: 64,
    };
    Checked::new(&AttentionLadderCall {
        q: tensor(1 << 30),
        k: tensor(2 << 30),
        v: tensor(3 << 30),
        o: tensor(4 << 30),
        lse: null_mut(),
        dtype: crate::ATTENTION_LADDER_F16,
        mask: crate::ATTENTION_LADDER_FULL,
        batch: 1,
        heads_q: heads,
        heads_kv: heads,
        seq_q: 512,
        seq_kv: 512,
        head_dim: 64,
        softmax_scale: 0.0,
        flags: 0,
    })
    .unwrap()
}

/// Returns a call on two packed sequences of at most `longest` rows of 8 and 2 heads.
fn varlen_call(longest: i32) -> AttentionLadderVarlenCall {
    AttentionLadderVarlenCall {
        dtype: crate::ATTENTION_LADDER_F16,
        mask: crate::ATTENTION_LADDER_CAUSAL,
        batch: 2,
        max_seqlen_q: longest,
        max_seqlen_k: longest,
        total_q: 2 * longest,
        total_k: 2 * longest,
        ..packed()
    }
}

fn launch_varlen(gpu: &Gpu, longest: i32, stream: CUstream) -> Result<(), Failure> {
    let checked = CheckedVarlen::new(&varlen_call(longest)).unwrap();
    // SAFETY: nothing is read or written.
    unsafe { gpu.launch_varlen(&checked, stream) }
}

const DEFAULT: CUstream = null_mut();

fn launch(gpu: &Gpu, heads: i32, stream: CUstream) -> Result<(), Failure> {
    // SAFETY: nothing is read or written.
    unsafe { gpu.launch(&call(heads), stream) }
}

/// Launches a problem twice and returns the calls of the second time.
fn second_launch(driver: &Driver, gpu: &Gpu, stream: CUstream) -> Vec<String> {
    launch(gpu, 8, stream).unwrap();
    driver.log();
    launch(gpu, 8, stream).unwrap();
    driver.log()
}

#[test]
fn a_launch_stays_in_whatever_context_of_the_gpu_is_current() {
    let driver = Driver::take();
    let gpu = gpu(0);
    for (context, name) in [
        (driver.primary(0), "primary 0"),
        (driver.context("green", 0, true), "green"),
        (driver.context("user's", 0, false), "user's"),
    ] {
        driver.within(context, || {
            assert_eq!(
                second_launch(&driver, &gpu, DEFAULT),
                [format!("launch in {name}")]
            );
        });
    }
    assert_eq!(driver.stack(), "");
}

#[test]
fn default_streams_by_their_other_names_are_those_of_the_current_context() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let green = driver.context("green", 0, true);
    for number in [1_usize, 2] {
        let stream = number as CUstream;
        driver.within(green, || {
            assert_eq!(second_launch(&driver, &gpu, stream), ["launch in green"]);
        });
        assert_eq!(
            second_launch(&driver, &gpu, stream),
            ["push primary 0", "launch in primary 0", "pop primary 0"]
        );
    }
}

#[test]
fn nested_contexts_get_their_own_launches_and_are_left_as_they_were() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let [outer, inner] = ["outer", "inner"].map(|name| driver.context(name, 0, true));
    driver.within(outer, || {
        assert_eq!(second_launch(&driver, &gpu, DEFAULT), ["launch in outer"]);
        driver.within(inner, || {
            assert_eq!(second_launch(&driver, &gpu, DEFAULT), ["launch in inner"]);
            assert_eq!(driver.stack(), "outer, inner");
        });
        assert_eq!(second_launch(&driver, &gpu, DEFAULT), ["launch in outer"]);
        assert_eq!(driver.stack(), "outer");
    });
}

#[test]
fn a_stream_of_another_context_takes_the_launch_there() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let (primary, green) = (driver.primary(0), driver.context("green", 0, true));
    let primary_stream = driver.stream(primary);
    let green_stream = driver.stream(green);
    driver.within(primary, || {
        let log = second_launch(&driver, &gpu, green_stream);
        assert_eq!(log, ["launch in green"]);
    });
    driver.within(green, || {
        let log = second_launch(&driver, &gpu, primary_stream);
        assert_eq!(log, ["launch in primary 0"]);
    });
}

#[test]
fn a_thread_without_a_context_enters_the_streams() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let user = driver.stream(driver.context("user's", 0, false));
    let question = "ask for a stream's context";
    assert_eq!(
        second_launch(&driver, &gpu, user),
        [question, "push user's", "launch in user's", "pop user's"]
    );
    // A green context's stream is launched to from the primary context.
    let green = driver.stream(driver.context("green", 0, true));
    assert_eq!(
        second_launch(&driver, &gpu, green),
        [
            question,
            "push primary 0",
            "launch in green",
            "pop primary 0"
        ]
    );
    assert_eq!(driver.stack(), "");
}

#[test]
fn a_thread_without_a_context_or_a_stream_enters_the_primary_context_which_is_made_once() {
    let driver = Driver::take();
    let gpu = gpu(0);
    launch(&gpu, 8, DEFAULT).unwrap();
    let first = driver.log();
    assert_eq!(first[..2], ["retain primary 0", "push primary 0"]);
    assert_eq!(
        second_launch(&driver, &gpu, DEFAULT),
        ["push primary 0", "launch in primary 0", "pop primary 0"]
    );
    assert_eq!(driver.stack(), "");
}

#[test]
fn a_context_of_another_gpu_is_left_for_the_call_and_current_again_after_it() {
    let driver = Driver::take();
    let gpu = gpu(1);
    driver.within(driver.primary(0), || {
        assert_eq!(
            second_launch(&driver, &gpu, DEFAULT),
            ["push primary 1", "launch in primary 1", "pop primary 1"]
        );
        let green = driver.stream(driver.context("green", 1, true));
        assert_eq!(second_launch(&driver, &gpu, green)[2], "launch in green");
        assert_eq!(driver.stack(), "primary 0");
    });
}

#[test]
fn the_first_call_loads_for_its_gpu_in_the_current_context_while_capture_allows_it() {
    let driver = Driver::take();
    let gpu = gpu(1);
    driver.within(driver.context("green", 1, true), || {
        assert!(gpu.query(&call(8)).is_ok());
        let expected = [
            "capture mode relaxed",
            "load a library",
            "take a kernel",
            "allow shared memory on primary 1",
            "load in green",
            "capture mode as before",
        ];
        assert_eq!(driver.log(), expected);
        launch(&gpu, 8, DEFAULT).unwrap();
        assert_eq!(driver.log(), ["launch in green"]);
    });
}

#[test]
fn one_kernel_serves_every_context_and_so_do_those_of_other_problems() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let mut variants = vec![];
    for (name, heads) in [("a", 8), ("b", 8), ("c", 64), ("d", 8)] {
        driver.within(driver.context(name, 0, true), || {
            variants.push(gpu.query(&call(heads)).unwrap());
            driver.log();
            launch(&gpu, heads, DEFAULT).unwrap();
            assert_eq!(driver.log(), [format!("launch in {name}")]);
        });
    }
    assert_eq!(
        [variants[1], variants[3]],
        [variants[0]; 2],
        "chosen for the whole GPU"
    );
}

#[test]
fn each_thread_launches_in_its_own_context() {
    let driver = Driver::take();
    let gpu = &gpu(0);
    let names = ["one", "two", "three", "four"];
    let addresses = names.map(|name| driver.context(name, 0, true) as usize);
    std::thread::scope(|scope| {
        for address in addresses {
            scope.spawn(move || {
                // SAFETY: the context is the driver's; the thread ends with it.
                let pushed = unsafe { sys::cuCtxPushCurrent_v2(address as CUcontext) };
                pushed.result().unwrap();
                for _ in 0..50 {
                    launch(gpu, 8, DEFAULT).unwrap();
                }
            });
        }
    });
    let log = driver.log();
    for name in names {
        let expected = format!("launch in {name}");
        let launches = log.iter().filter(|line| **line == expected);
        assert_eq!(launches.count(), 50, "{name}");
    }
    assert!(!log.iter().any(|line| line.starts_with("pop")), "{log:?}");
}

#[test]
fn a_failed_launch_leaves_the_contexts_as_they_were() {
    let driver = Driver::take();
    let gpu = gpu(0);
    second_launch(&driver, &gpu, DEFAULT);
    driver.fail_next_launch();
    let failure = launch(&gpu, 8, DEFAULT).unwrap_err();
    assert_eq!(failure.code, Code::Driver);
    assert!(failure.message.contains("the launch failed"), "{failure:?}");
    assert_eq!(driver.stack(), "");
    driver.within(driver.context("green", 0, true), || {
        driver.fail_next_launch();
        launch(&gpu, 8, DEFAULT).unwrap_err();
        assert_eq!(driver.stack(), "green");
    });
}

#[test]
fn a_destroyed_context_is_refused_and_not_replaced() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let green = driver.context("green", 0, true);
    driver.within(green, || {
        launch(&gpu, 8, DEFAULT).unwrap();
        driver.destroy(green);
        driver.log();
        let failure = launch(&gpu, 8, DEFAULT).unwrap_err();
        assert_eq!(failure.code, Code::Driver);
        assert!(
            failure.message.contains("CONTEXT_IS_DESTROYED"),
            "{failure:?}"
        );
        assert!(driver.log().is_empty());
    });
}

#[test]
fn a_gpu_is_opened_without_a_context() {
    let driver = Driver::take();
    let _gpu = gpu(0);
    assert!(driver.log().is_empty());
}

#[test]
fn sequences_of_any_length_are_launched_by_one_kernel_that_is_loaded_once() {
    let driver = Driver::take();
    let gpu = gpu(0);
    let green = driver.context("green", 0, true);
    driver.within(green, || {
        launch_varlen(&gpu, 300, DEFAULT).unwrap();
        let expected = [
            "capture mode relaxed",
            "load a library",
            "take a kernel",
            "allow shared memory on primary 0",
            "load in green",
            "capture mode as before",
            "launch in green",
        ];
        assert_eq!(driver.log(), expected);
        // Nineteen tiles of 16 queries, of the four heads that share keys, of each sequence.
        assert_eq!(driver.grid(), [19 * 2 * 2, 1, 1]);
        launch_varlen(&gpu, 64, DEFAULT).unwrap();
        assert_eq!(driver.log(), ["launch in green"]);
        assert_eq!(driver.grid(), [4 * 2 * 2, 1, 1]);
        launch_varlen(&gpu, 2_000, DEFAULT).unwrap();
        assert_eq!(
            driver.grid(),
            [132, 1, 1],
            "a block for each multiprocessor"
        );
    });
}

#[test]
fn a_launch_of_sequences_goes_to_the_streams_context() {
    let driver = Driver::take();
    let gpu = gpu(1);
    let user = driver.stream(driver.context("user's", 1, false));
    launch_varlen(&gpu, 300, user).unwrap();
    driver.log();
    launch_varlen(&gpu, 300, user).unwrap();
    assert_eq!(
        driver.log()[1..],
        ["push user's", "launch in user's", "pop user's"]
    );
    driver.fail_next_launch();
    let failure = launch_varlen(&gpu, 300, user).unwrap_err();
    assert_eq!(failure.code, Code::Driver);
    let words = "stage14-served/served-64x128: the launch failed";
    assert!(failure.message.starts_with(words), "{failure:?}");
    assert_eq!(driver.stack(), "");
}

#[test]
fn sequences_are_refused_on_a_gpu_that_is_not_of_hopper() {
    let _driver = Driver::take();
    let mut gpu = gpu(0);
    for architecture in ["sm_89", "sm_100"] {
        gpu.served.device = Some(architecture.parse().unwrap());
        let failure = launch_varlen(&gpu, 300, DEFAULT).unwrap_err();
        assert_eq!(failure.code, Code::Unsupported);
        let words = format!("served-64x128 needs sm_90a; the device has {architecture}");
        assert_eq!(failure.message, words);
    }
}

/// The arrays of a call on two sequences, in memory that the driver copies from.
struct Arrays {
    q_starts: [i32; 3],
    used: [i32; 2],
    table: [[i32; 4]; 2],
}

impl Arrays {
    /// Launches two packed sequences of queries over keys in 6 pages of 64 rows.
    fn launch(&self, gpu: &Gpu) -> Result<(), Failure> {
        let mut call = AttentionLadderVarlenCall {
            cu_seqlens_q: self.q_starts.as_ptr(),
            cu_seqlens_k: null(),
            seqused_k: self.used.as_ptr(),
            block_table: self.table.as_ptr().cast(),
            pages: 6,
            page_size: 64,
            block_table_stride: 4,
            ..varlen_call(200)
        };
        for pages in [&mut call.k, &mut call.v] {
            pages.batch_stride = 64 * 2 * 64;
        }
        let checked = CheckedVarlen::new(&call).unwrap();
        // SAFETY: nothing but the arrays is read or written.
        unsafe { gpu.launch_varlen(&checked, DEFAULT) }
    }
}

const RIGHT: Arrays = Arrays {
    q_starts: [0, 200, 201],
    used: [200, 65],
    table: [[5, 0, 3, 1], [2, 4, -7, 99]],
};

#[test]
fn lengths_and_pages_are_read_on_the_host_only_where_that_is_requested() {
    let driver = Driver::take();
    let mut gpu = gpu(0);
    RIGHT.launch(&gpu).unwrap();
    assert!(!driver.log().contains(&"copy to the host".to_string()));
    gpu.is_checking_lengths = true;
    RIGHT.launch(&gpu).unwrap();
    let copy = ["copy to the host", "wait for a stream"];
    let mut expected = vec!["push primary 0"];
    // Starts, used keys, and the entries of each sequence.
    expected.extend([copy; 4].as_flattened());
    expected.extend(["launch in primary 0", "pop primary 0"]);
    assert_eq!(driver.log(), expected);
}

#[test]
fn the_first_wrong_number_is_named_and_nothing_is_launched() {
    let driver = Driver::take();
    let mut gpu = gpu(0);
    gpu.is_checking_lengths = true;
    for (arrays, message) in [
        (
            Arrays {
                q_starts: [0, 201, 200],
                ..RIGHT
            },
            "sequence 0 has 201 rows of q by cu_seqlens_q, more than max_seqlen_q = 200",
        ),
        (
            Arrays {
                used: [200, 201],
                ..RIGHT
            },
            "seqused_k[1] is 201: by max_seqlen_k the sequence has 200 keys",
        ),
        (
            Arrays {
                table: [[5, 0, 3, 1], [2, 6, -7, 99]],
                ..RIGHT
            },
            "block_table[1][1] is 6: k has 6 pages",
        ),
    ] {
        let failure = arrays.launch(&gpu).unwrap_err();
        assert_eq!(failure, Failure::new(Code::Invalid, message));
        let log = driver.log();
        assert!(
            !log.iter().any(|line| line.starts_with("launch")),
            "{log:?}"
        );
        assert_eq!(driver.stack(), "");
    }
}

#[test]
fn lengths_are_not_read_during_a_capture_and_the_call_is_refused() {
    let driver = Driver::take();
    let mut gpu = gpu(0);
    driver.capture(true);
    RIGHT.launch(&gpu).unwrap();
    gpu.is_checking_lengths = true;
    let failure = RIGHT.launch(&gpu).unwrap_err();
    driver.capture(false);
    assert_eq!(failure.code, Code::Invalid);
    let words = "ATTENTION_LADDER_CHECK is set, and the stream is being captured into a CUDA graph";
    assert!(failure.message.starts_with(words), "{failure:?}");
}
