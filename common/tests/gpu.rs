//! The driver and the timer on a GPU, without a stage: `cargo test --workspace real_gpu`. Where
//! there is none, each test says so and passes. One test at a time has the GPU.
#![forbid(unsafe_code)]

use common::device::cuda::{CudaDevice, CudaError, known_length};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::agree::agree;
use common::reference::gpu::{FATBIN, MOST_HOST_SCORES};
use common::reference::{Probability, reference};
use common::serving::Serving;
use common::timing::Plan;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A GPU that no other test uses at the same time.
struct SoleGpu {
    device: CudaDevice,
    _guard: MutexGuard<'static, ()>,
}

/// Returns the first GPU. A line that says why there is none goes past libtest, which shows no
/// output of a test that passes.
fn gpu() -> Option<SoleGpu> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match CudaDevice::open(0) {
        Ok(device) => Some(SoleGpu {
            device,
            _guard: guard,
        }),
        Err(
            error @ (CudaError::NoDriver
            | CudaError::NoDevice { .. }
            | CudaError::DriverTooOld { .. }),
        ) => {
            let test = std::thread::current()
                .name()
                .unwrap_or_default()
                .to_string();
            let mut terminal = std::io::stderr();
            writeln!(terminal, "no GPU for {test}: {error}").unwrap();
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_timer_reads_known_lengths_on_a_real_gpu() {
    let Some(gpu) = gpu() else {
        return;
    };
    let device = &gpu.device;
    println!("{:#?}", device.info());
    let plan = Plan::default();
    let known = known_length(device, &plan).unwrap();
    assert!(known.ok, "{known:?}");
}

/// Every row of a problem that is large enough for the GPU.
#[test]
fn large_references_are_the_hosts_on_a_real_gpu() {
    let Some(gpu) = gpu() else {
        return;
    };
    let device = &gpu.device;
    assert!(
        FATBIN.is_some(),
        "nvcc was not found when this was built: run scripts/cuda-toolkit"
    );
    let shape = Shape {
        batch: 1,
        heads_q: 4,
        heads_kv: 2,
        seq_q: 1100,
        seq_kv: 3001,
        head_dim: 128,
        serving: Serving::DENSE,
    };
    for (dtype, mask) in [
        (Dtype::F16, Mask::Full),
        (Dtype::Bf16, Mask::Causal),
        (Dtype::E4m3, Mask::Causal),
    ] {
        let problem = Problem::new(shape, dtype, mask).unwrap();
        assert!(problem.scores() > MOST_HOST_SCORES);
        let inputs = Inputs::generate(&problem, Family::Normal, 0);
        let p = Probability::of_operands(dtype);
        let host = reference(&inputs, p).unwrap();
        let on_gpu = device.reference(&inputs, p).unwrap();
        agree(&problem, &host, &on_gpu).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn nvml_reads_clocks_and_the_drivers_version_on_a_real_gpu() {
    let Some(gpu) = gpu() else {
        return;
    };
    let device = &gpu.device;
    let reading = device.conditions();
    println!("driver {:?}, {reading:?}", device.info().driver_version);
    assert!(
        reading
            .sm_mhz
            .is_some_and(|mhz| (100..10_000).contains(&mhz)),
        "{reading:?}"
    );
    assert!(
        reading
            .power_w
            .is_some_and(|watts| (5.0..5_000.0).contains(&watts)),
        "{reading:?}"
    );
    assert!(
        reading
            .celsius
            .is_some_and(|celsius| (1..120).contains(&celsius)),
        "{reading:?}"
    );
    assert!(
        device
            .info()
            .driver_version
            .as_ref()
            .is_some_and(|version| version.contains('.')),
        "{:?}",
        device.info()
    );
}

#[test]
fn the_watchdog_ends_a_wait_and_loses_the_context_on_a_real_gpu() {
    let Some(mut gpu) = gpu() else {
        return;
    };
    let device = &mut gpu.device;
    let too_long = Duration::from_millis(500);
    device.set_watchdog(Duration::from_millis(50));
    let mut arm = device.spin_arm(too_long).unwrap();
    let error = device.measure(&mut arm, &Plan::default()).unwrap_err();
    assert!(
        error.is_fatal()
            && error
                .to_string()
                .starts_with("timer/spin-500000us: no end after"),
        "{error}"
    );
    assert!(matches!(
        device.zero_line(&Plan::default()),
        Err(CudaError::Sticky)
    ));
    // Unlike a kernel that hangs, this one ends, and leaves the GPU to the next test.
    std::thread::sleep(too_long);
}
