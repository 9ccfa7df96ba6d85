//! Arms, the things that are timed: one kernel over rotating sets of buffers.

use super::loaded::Untouched;
use super::{Argument, BoundKernel, CudaDevice, CudaError, DeviceInputs, Helpers, LaunchName};
use crate::device::{Execution, Staged};
use crate::problem::Problem;
use crate::stage::{LoadedStage, Prepared};
use crate::timing::sustained::Chunk;
use crate::timing::{Plan, Rotation};
use cudarc::driver::sys::{
    self, CUevent_flags, CUgraphInstantiate_flags, CUgraphNodeType, CUstreamCaptureMode,
};
use cudarc::driver::{CudaEvent, CudaFunction, CudaGraph, CudaSlice, DriverError, LaunchConfig};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Q, K and V on the GPU, as often as a rotation needs them. Arms that are compared share one pool.
pub struct InputPool {
    rotation: Rotation,
    /// Set `i` holds contents `i % contents.len()`.
    contents: Vec<Staged>,
    sets: Vec<DeviceInputs>,
    /// What each of the contents is before a launch.
    untouched: Vec<Untouched>,
}

impl fmt::Debug for InputPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputPool")
            .field("rotation", &self.rotation)
            .field("contents", &self.contents.len())
            .finish_non_exhaustive()
    }
}

impl InputPool {
    /// Makes a pool of `contents` before any of it is uploaded.
    pub fn on_host(
        mut contents: Vec<Staged>,
        is_cold: bool,
        l2_bytes: u64,
    ) -> Result<Self, CudaError> {
        let problems = contents
            .windows(2)
            .filter(|pair| pair[0].problem != pair[1].problem)
            .count()
            + 1;
        let Some(first) = contents.first().filter(|_| problems == 1) else {
            return Err(CudaError::Sets {
                sets: contents.len(),
                problems: if contents.is_empty() { 0 } else { problems },
            });
        };
        let (input_bytes, all) = (first.problem.input_bytes(), first.problem.min_bytes());
        let choose = if is_cold {
            Rotation::cold
        } else {
            Rotation::choose
        };
        let rotation = choose(input_bytes, all - input_bytes, l2_bytes);
        contents.truncate(rotation.sets);
        Ok(Self {
            rotation,
            contents,
            sets: vec![],
            untouched: vec![],
        })
    }

    pub fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    pub fn problem(&self) -> &Problem {
        &self.contents[0].problem
    }

    /// Returns the host side; [`RotatedOutput::input`] counts these.
    pub fn contents(&self) -> &[Staged] {
        &self.contents
    }

    /// Returns the contents that a set holds, by their index.
    fn contents_of(&self, set: usize) -> usize {
        set % self.contents.len()
    }
}

/// The output of a kernel for one set of contents.
#[derive(Clone, Debug)]
pub struct RotatedOutput {
    /// Index in [`InputPool::contents`].
    pub input: usize,
    /// The number of buffers that held exactly these bytes. A kernel with more than one entry for
    /// an input is not deterministic.
    pub buffers: usize,
    /// The bytes, inputs included.
    pub execution: Execution,
}

/// A graph of launches whose time is one sample.
pub(super) struct TimedGraph {
    graph: CudaGraph,
    pub(super) launches: usize,
    /// Microseconds per launch at the first trial, without the arm's delay.
    work_us: f64,
    /// Microseconds per launch with the delay.
    pub(super) launch_us: f64,
    sample_time: Duration,
}

/// The time for which a spinning kernel holds the stream while the host submits a graph.
const LEAD_IN: Duration = Duration::from_micros(50);

/// A kernel that is timed over rotating sets of buffers.
pub struct Arm<'d> {
    pub(super) device: &'d CudaDevice,
    pub(super) kernel: BoundKernel,
    /// The argument of a launch on each set.
    arguments: Vec<Argument>,
    pub(super) pool: Option<Rc<InputPool>>,
    outputs: Vec<CudaSlice<u8>>,
    /// The delay at the end of every graph, as a fraction of the graph's own time.
    delay: f64,
    pub(super) graph: Option<TimedGraph>,
    next_set: Cell<usize>,
}

impl fmt::Debug for Arm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arm")
            .field("label", &self.label())
            .field("sets", &self.sets())
            .finish_non_exhaustive()
    }
}

const ONE_WARP: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (32, 1, 1),
    shared_mem_bytes: 0,
};

impl CudaDevice {
    /// Uploads `contents`, all of one problem, a few times, or as often as inputs from device
    /// memory take: further sets only repeat contents at other addresses.
    pub fn pool(&self, contents: Vec<Staged>, is_cold: bool) -> Result<Rc<InputPool>, CudaError> {
        self.check_usable()?;
        let mut pool = InputPool::on_host(contents, is_cold, self.info().l2_bytes)?;
        for staged in &pool.contents {
            pool.untouched.push(self.upload_untouched(staged)?);
        }
        for set in 0..pool.rotation.sets {
            let input = pool.contents_of(set);
            let copied = self.copy_inputs(&pool.contents[input], &pool.untouched[input])?;
            pool.sets.push(copied);
        }
        Ok(Rc::new(pool))
    }

    /// Launches `prepared` over the sets of `pool`, each with an output of its own.
    pub fn arm(
        &self,
        stage: &LoadedStage,
        prepared: &Prepared<'_>,
        pool: &Rc<InputPool>,
    ) -> Result<Arm<'_>, CudaError> {
        self.check_usable()?;
        let kernel = self.bind(stage, prepared, &pool.contents[0])?;
        self.arm_of(kernel, prepared, pool)
    }

    /// Launches a kernel that is bound over the sets of `pool`.
    pub(super) fn arm_of(
        &self,
        kernel: BoundKernel,
        prepared: &Prepared<'_>,
        pool: &Rc<InputPool>,
    ) -> Result<Arm<'_>, CudaError> {
        let mut outputs = Vec::with_capacity(pool.sets.len());
        let mut arguments = Vec::with_capacity(pool.sets.len());
        for (set, inputs) in pool.sets.iter().enumerate() {
            let input = pool.contents_of(set);
            let staged = &pool.contents[input];
            let poisoned = self.copy_of(&pool.untouched[input].output)?;
            arguments.push(self.argument(prepared, staged, inputs, &poisoned, None)?);
            outputs.push(poisoned);
        }
        Ok(self.new_arm(kernel, arguments, Some(Rc::clone(pool)), outputs))
    }

    /// Launches empty kernels: the zero line. With a `pool` it claims to compute its problem, which
    /// gates and speed of light must refuse.
    pub fn noop_arm(&self, pool: Option<&Rc<InputPool>>) -> Result<Arm<'_>, CudaError> {
        self.check_usable()?;
        let noop = self.helper("empty-kernel", |helpers| &helpers.noop)?;
        let mut outputs = Vec::new();
        if let Some(inputs) = pool {
            for set in 0..inputs.sets.len() {
                let untouched = &inputs.untouched[inputs.contents_of(set)];
                outputs.push(self.copy_of(&untouched.output)?);
            }
        }
        let arguments = (0..outputs.len().max(1)).map(|_| Argument::None).collect();
        Ok(self.new_arm(noop, arguments, pool.cloned(), outputs))
    }

    /// Launches kernels that spin for `duration` by the GPU's own clock.
    pub fn spin_arm(&self, duration: Duration) -> Result<Arm<'_>, CudaError> {
        self.check_usable()?;
        let name = format!("spin-{}us", duration.as_micros());
        let spin = self.helper(&name, |helpers| &helpers.spin)?;
        let nanoseconds = Argument::Nanoseconds(duration.as_nanos() as u64);
        Ok(self.new_arm(spin, vec![nanoseconds], None, Vec::new()))
    }

    fn helper(
        &self,
        name: &str,
        pick: impl Fn(&Helpers) -> &CudaFunction,
    ) -> Result<BoundKernel, CudaError> {
        Ok(BoundKernel {
            function: pick(&self.helpers()?).clone(),
            config: ONE_WARP,
            name: LaunchName {
                stage: "timer".into(),
                variant: name.into(),
                problem: String::new(),
            },
        })
    }

    fn new_arm(
        &self,
        kernel: BoundKernel,
        arguments: Vec<Argument>,
        pool: Option<Rc<InputPool>>,
        outputs: Vec<CudaSlice<u8>>,
    ) -> Arm<'_> {
        Arm {
            device: self,
            kernel,
            arguments,
            pool,
            outputs,
            delay: 0.0,
            graph: None,
            next_set: Cell::new(0),
        }
    }

    /// Holds the stream for `duration`, while the host submits what comes behind it.
    pub(super) fn enqueue_spin(&self, duration: Duration) -> Result<(), CudaError> {
        let spin = self.helper("lead-in", |helpers| &helpers.spin)?;
        self.enqueue(&spin, &Argument::Nanoseconds(duration.as_nanos() as u64))
    }

    pub(super) fn timing_events(&self, count: usize) -> Result<Vec<CudaEvent>, CudaError> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        (0..count)
            .map(|_| self.context.new_event(flags))
            .collect::<Result<_, _>>()
            .map_err(|error| self.driver_error("making an event", error))
    }
}

impl Arm<'_> {
    /// Returns `stage/variant`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.kernel.name.stage, self.kernel.name.variant)
    }

    /// Delays every graph by `fraction` of the work's own time.
    pub fn with_delay(mut self, fraction: f64) -> Self {
        self.delay = fraction;
        self.graph = None;
        self
    }

    pub(super) fn sets(&self) -> usize {
        self.arguments.len()
    }

    pub(super) fn rotation(&self) -> Rotation {
        match &self.pool {
            Some(pool) => pool.rotation,
            None => Rotation::new(1, 0, 0, self.device.info().l2_bytes),
        }
    }

    pub(super) fn enqueue_next(&self) -> Result<(), CudaError> {
        let set = self.next_set.get();
        self.next_set.set((set + 1) % self.sets());
        self.enqueue_on(set)
    }

    fn enqueue_on(&self, set: usize) -> Result<(), CudaError> {
        self.device.enqueue(&self.kernel, &self.arguments[set])
    }

    /// Times `submit` by the first two of `events`, recorded around it.
    pub(super) fn time<T>(
        &self,
        events: &[CudaEvent],
        expected: Duration,
        submit: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<Submitted<T>, CudaError> {
        let (start, end) = (&events[0], &events[1]);
        self.device.record(start)?;
        let result = submit()?;
        self.device.record(end)?;
        self.device.wait(end, &self.kernel.name, expected)?;
        Ok(Submitted {
            us: self.device.elapsed_us(start, end)?,
            result,
        })
    }

    pub(super) fn poison(&mut self) -> Result<(), CudaError> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        for (set, output) in self.outputs.iter_mut().enumerate() {
            let untouched = &pool.untouched[pool.contents_of(set)];
            self.device.copy_into(&untouched.output, output)?;
        }
        Ok(())
    }

    pub(super) fn collect_outputs(
        &self,
        collected: &mut Vec<RotatedOutput>,
    ) -> Result<(), CudaError> {
        self.collect_outputs_of(self.sets(), collected)
    }

    pub(super) fn collect_outputs_of(
        &self,
        sets: usize,
        collected: &mut Vec<RotatedOutput>,
    ) -> Result<(), CudaError> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let mut downloaded: Vec<Downloaded<'_>> = Vec::new();
        for (set, output) in self.outputs.iter().enumerate().take(sets) {
            let input = pool.contents_of(set);
            let changed_inputs = self.device.changed_inputs(
                &self.kernel.name,
                &pool.contents[input],
                &pool.sets[set],
                &pool.untouched[input],
            )?;
            let is_untouched = changed_inputs.iter().all(Option::is_none);
            // A set whose output is already here is not downloaded again.
            let known = downloaded.iter().find(|known| known.input == input);
            if let Some(Downloaded {
                output: other, at, ..
            }) = known
                && is_untouched
                && self.device.differ(&[(output, *other)])? == [false]
            {
                collected[*at].buffers += 1;
                continue;
            }
            let execution = Execution {
                changed_inputs,
                output: self.device.download(output)?,
                lse: None,
            };
            let at = merge(collected, input, execution);
            if is_untouched && known.is_none() {
                downloaded.push(Downloaded { input, output, at });
            }
        }
        Ok(())
    }

    pub fn outputs(&self) -> Result<Vec<RotatedOutput>, CudaError> {
        let mut outputs = Vec::new();
        self.device.finish(&self.kernel.name, Duration::ZERO)?;
        self.collect_outputs(&mut outputs)?;
        Ok(outputs)
    }

    /// Returns the device time of `launches` launches, for a harness that chooses how many and
    /// warms up.
    pub fn device_time(&mut self, launches: u64, plan: &Plan) -> Result<Duration, CudaError> {
        if self.graph.is_none() {
            self.device.prepare_to_time()?;
            self.build_graph(plan)?;
        }
        let graph = self.timed_graph()?;
        let replays = launches.div_ceil(graph.launches as u64).max(1);
        let replayed = replays as f64 * graph.launches as f64;
        let expected = microseconds(2.0 * replayed * graph.launch_us);
        let events = self.device.timing_events(2)?;
        self.device.enqueue_spin(LEAD_IN)?;
        let submitted = self.time(&events, expected, || {
            (0..replays).try_for_each(|_| self.replay())
        })?;
        Ok(microseconds(submitted.us * launches as f64 / replayed))
    }

    /// Replays the graph for about `length`, and reads the GPU once the replays are submitted:
    /// those that are left must take longer than the reading. The arm must have a graph.
    pub fn chunk(&self, length: Duration) -> Result<Chunk, CudaError> {
        let graph = self.timed_graph()?;
        let replay_us = graph.launch_us * graph.launches as f64;
        let replays = (length.as_secs_f64() * 1e6 / replay_us).ceil().max(1.0) as usize;
        let expected = microseconds(2.0 * replays as f64 * replay_us);
        let events = self.device.timing_events(2)?;
        let submitted = self.time(&events, expected, || {
            for _ in 0..replays {
                self.replay()?;
            }
            Ok(self.device.conditions())
        })?;
        Ok(Chunk {
            us: submitted.us,
            launches: replays * graph.launches,
            reading: submitted.result,
        })
    }

    pub(super) fn timed_graph(&self) -> Result<&TimedGraph, CudaError> {
        self.graph.as_ref().ok_or_else(|| CudaError::GraphNodes {
            launch: Box::new(self.kernel.name.clone()),
            expected: 1,
            kernels: 0,
            nodes: 0,
        })
    }

    /// Returns the microseconds per launch of one replay.
    pub(super) fn sample(&self, events: &[CudaEvent]) -> Result<f64, CudaError> {
        let graph = self.timed_graph()?;
        let expected = microseconds(2.0 * graph.launches as f64 * graph.launch_us);
        self.device.enqueue_spin(LEAD_IN)?;
        let replay = self.time(events, expected, || self.replay())?;
        Ok(replay.us / graph.launches as f64)
    }

    pub(super) fn replay(&self) -> Result<(), CudaError> {
        self.launch(&self.timed_graph()?.graph)
    }

    fn launch(&self, graph: &CudaGraph) -> Result<(), CudaError> {
        let launched = graph.launch();
        launched.map_err(|error| self.device.launch_error(&self.kernel.name, error))
    }

    /// Launches every set once on its own, so that a failing kernel is found, lets the clocks rise,
    /// and sizes the graph by a trial.
    pub(super) fn build_graph(&mut self, plan: &Plan) -> Result<(), CudaError> {
        let built_for = self.graph.as_ref().map(|graph| graph.sample_time);
        if built_for == Some(plan.sample_time) {
            return Ok(());
        }
        for set in 0..self.sets() {
            self.enqueue_on(set)?;
            self.device.finish(&self.kernel.name, Duration::ZERO)?;
        }
        let events = self.device.timing_events(2)?;
        let mut launch_us = self.settle(plan, &events)?;
        // One launch between events reads several microseconds too long, so the first graph may
        // come out too short.
        let mut launches = plan.launches_per_sample(launch_us, self.sets());
        loop {
            let graph = self.capture(launches, None)?;
            launch_us = self.trial(&graph, launches, launch_us, &events)?;
            let needed = plan.launches_per_sample(launch_us, self.sets());
            if needed as f64 <= 1.25 * launches as f64 {
                self.graph = Some(TimedGraph {
                    graph,
                    launches,
                    work_us: launch_us,
                    launch_us,
                    sample_time: plan.sample_time,
                });
                break;
            }
            launches = needed;
        }
        if self.delay > 0.0 {
            self.resize_graph(launches)?;
        }
        Ok(())
    }

    /// Launches until the clocks have risen. Returns the microseconds of the fastest launch.
    fn settle(&self, plan: &Plan, events: &[CudaEvent]) -> Result<f64, CudaError> {
        let settling = Instant::now();
        let mut launch_us = f64::INFINITY;
        while settling.elapsed() < plan.settling || !launch_us.is_finite() {
            let launch = self.time(events, Duration::ZERO, || self.enqueue_next())?;
            launch_us = launch_us.min(launch.us);
        }
        Ok(launch_us)
    }

    /// Returns the microseconds per launch of the fastest of three replays.
    fn trial(
        &self,
        graph: &CudaGraph,
        launches: usize,
        launch_us: f64,
        events: &[CudaEvent],
    ) -> Result<f64, CudaError> {
        let expected = microseconds(2.0 * launches as f64 * launch_us);
        let mut fastest = f64::INFINITY;
        for _ in 0..3 {
            self.device.enqueue_spin(LEAD_IN)?;
            let replay = self.time(events, expected, || self.launch(graph))?;
            fastest = fastest.min(replay.us);
        }
        Ok(fastest / launches as f64)
    }

    /// Captures a graph of so many launches in place of the arm's. The delay changes in proportion.
    pub fn resize_graph(&mut self, launches: usize) -> Result<(), CudaError> {
        let TimedGraph {
            work_us,
            sample_time,
            ..
        } = *self.timed_graph()?;
        let delay_us = (self.delay > 0.0).then_some(self.delay * work_us * launches as f64);
        let graph = self.capture(launches, delay_us)?;
        let launch_us = work_us * (1.0 + self.delay);
        self.graph = Some(TimedGraph {
            graph,
            launches,
            work_us,
            launch_us,
            sample_time,
        });
        Ok(())
    }

    /// Captures launches, set after set, and then a delay, in microseconds.
    fn capture(&self, launches: usize, delay_us: Option<f64>) -> Result<CudaGraph, CudaError> {
        let capturing = |error| self.device.driver_error("capturing a graph", error);
        self.device
            .stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .map_err(capturing)?;
        let enqueued = (0..launches)
            .try_for_each(|launch| self.enqueue_on(launch % self.sets()))
            .and_then(|()| match delay_us {
                Some(us) => self.device.enqueue_spin(microseconds(us)),
                None => Ok(()),
            });
        // The capture must be ended whether or not its launches were accepted.
        let captured = self.device.stream.end_capture(CUgraphInstantiate_flags(0));
        enqueued?;
        let expected = launches + usize::from(delay_us.is_some());
        let wrong_nodes = |kernels, nodes| CudaError::GraphNodes {
            launch: Box::new(self.kernel.name.clone()),
            expected,
            kernels,
            nodes,
        };
        let Some(graph) = captured.map_err(capturing)? else {
            return Err(wrong_nodes(0, 0));
        };
        let count = count_nodes(&graph).map_err(capturing)?;
        if (count.kernels, count.nodes) != (expected, expected) {
            return Err(wrong_nodes(count.kernels, count.nodes));
        }
        graph.upload().map_err(capturing)?;
        Ok(graph)
    }
}

/// Submitted work, and the time that it took the GPU.
pub(super) struct Submitted<T> {
    pub us: f64,
    /// The result of submitting it.
    pub result: T,
}

/// An output on the GPU that was downloaded, and whose inputs are as they were.
struct Downloaded<'o> {
    /// Index in [`InputPool::contents`].
    input: usize,
    output: &'o CudaSlice<u8>,
    /// Index among the outputs that were collected.
    at: usize,
}

/// Counts an output for its input: among its like, or as a new one. Returns its index.
fn merge(collected: &mut Vec<RotatedOutput>, input: usize, execution: Execution) -> usize {
    let like = collected
        .iter()
        .position(|known| known.input == input && known.execution == execution);
    match like {
        Some(at) => {
            collected[at].buffers += 1;
            at
        }
        None => {
            collected.push(RotatedOutput {
                input,
                buffers: 1,
                execution,
            });
            collected.len() - 1
        }
    }
}

/// The numbers of a graph's nodes.
struct NodeCount {
    kernels: usize,
    /// The number of all nodes, kernels included.
    nodes: usize,
}

fn count_nodes(graph: &CudaGraph) -> Result<NodeCount, DriverError> {
    let mut count = 0;
    // SAFETY: the graph is alive; with a null array the driver only writes the number of nodes.
    unsafe { sys::cuGraphGetNodes(graph.cu_graph(), std::ptr::null_mut(), &mut count) }.result()?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the array has room for `count` handles, which is what `count` tells the driver.
    unsafe { sys::cuGraphGetNodes(graph.cu_graph(), nodes.as_mut_ptr(), &mut count) }.result()?;
    let mut kernels = 0;
    for &node in &nodes[..count] {
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the node belongs to the graph, which is alive. The driver writes one of the
        // enum's values: launches and copies are all that can be captured here.
        unsafe { sys::cuGraphNodeGetType(node, &mut kind) }.result()?;
        kernels += usize::from(kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL);
    }
    Ok(NodeCount {
        kernels,
        nodes: count,
    })
}

/// Converts microseconds; what is not a duration becomes 0.
pub(super) fn microseconds(us: f64) -> Duration {
    Duration::try_from_secs_f64(us * 1e-6).unwrap_or(Duration::ZERO)
}

impl CudaDevice {
    pub(super) fn record(&self, event: &CudaEvent) -> Result<(), CudaError> {
        event
            .record(&self.stream)
            .map_err(|error| self.driver_error("recording an event", error))
    }

    pub(super) fn elapsed_us(&self, start: &CudaEvent, end: &CudaEvent) -> Result<f64, CudaError> {
        let milliseconds = start
            .elapsed_ms(end)
            .map_err(|error| self.driver_error("reading events", error))?;
        Ok(f64::from(milliseconds) * 1e3)
    }

    pub(super) fn host_us(
        submit: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<f64, CudaError> {
        let start = Instant::now();
        submit()?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_the_same_contents_that_differ_stay_apart() {
        let execution = |changed: u8, output: u8| Execution {
            changed_inputs: [(); 3].map(|()| (changed > 0).then_some(vec![changed])),
            output: vec![output],
            lse: None,
        };
        let mut collected = Vec::new();
        // Set 1 has other contents than sets 0 and 2.
        let places = [
            merge(&mut collected, 0, execution(0, 7)),
            merge(&mut collected, 1, execution(0, 8)),
            merge(&mut collected, 0, execution(0, 7)),
            // Set 3 returns other bytes than sets 0 and 2.
            merge(&mut collected, 0, execution(0, 9)),
            // Set 4 has written over its inputs.
            merge(&mut collected, 0, execution(3, 7)),
            // Set 5 returns by chance what set 1 does.
            merge(&mut collected, 2, execution(0, 8)),
        ];
        assert_eq!(places, [0, 1, 0, 2, 3, 4]);
        let counted: Vec<_> = collected
            .iter()
            .map(|o| (o.input, o.buffers, o.execution.output[0]))
            .collect();
        assert_eq!(
            counted,
            [(0, 2, 7), (1, 1, 8), (0, 1, 9), (0, 1, 7), (2, 1, 8)]
        );
    }

    #[test]
    fn what_is_no_duration_is_zero() {
        assert_eq!(microseconds(1.5), Duration::from_nanos(1500));
        assert_eq!(
            [-1.0, f64::NAN, f64::INFINITY].map(microseconds),
            [Duration::ZERO; 3]
        );
    }
}
