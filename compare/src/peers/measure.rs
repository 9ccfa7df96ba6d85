//! One problem after the other, on the GPU and in Python, interleaved.

use super::choose::{Item, candidates, is_candidate, takes, unsupported};
use super::pair::{Sampled, absent, deciding_rounds, pairs, wrong_clock};
use super::session::{Hello, SCRIPT, Session, SessionError};
use crate::measure::builds::StageBuild;
use crate::measure::timed_problem::TimedProblem;
use crate::record::meta::by_id;
use crate::record::{On, Place, Record, Row, Subject};
use common::device::cuda::{Arm, CudaDevice, CudaError};
use common::inputs::{Inputs, Operand};
use common::metric::Metric;
use common::reference::Probability;
use common::stage::LoadedStage;
use common::timing::stats::SampleError;
use common::timing::{Plan, SpeedOfLight};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Device time that one sample covers, in microseconds, at least: long against the GPU's change from one process to the
/// other.
const CHUNK_US: f64 = 20_000.0;

/// Launches that one sample covers, at least: large problems draw all the power there is, and clocks follow slowly.
const CHUNK_LAUNCHES: f64 = 50.0;

/// Untimed work before each sample, as a share of it, so that clocks are this arm's own.
const LEAD_IN: f64 = 0.25;

/// Device time of a trial: which of ours is the fastest.
const TRIAL_US: f64 = 2_000.0;

/// Samples of an arm that nothing is compared with.
const ALONE_SAMPLES: usize = 6;

/// Single calls per arm.
const CALLS: usize = 100;

/// A Python that ended is started anew, so that one bad backend does not end the measurement, but not for ever.
const STARTS: usize = 3;

/// Why nothing more could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Tensors cannot be handed over.
    #[error("cannot write {}; set TMPDIR to a folder that can be written", path.display())]
    Exchange {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Python cannot be told of it.
    #[error("{} is no UTF-8; set TMPDIR to a folder whose name is", path.display())]
    NoText { path: PathBuf },
    /// Ours could not be timed.
    #[error("timing failed")]
    Timing(#[from] CudaError),
    #[error("timing failed")]
    Samples(#[from] SampleError),
}

/// What a Python calls.
pub enum Calls {
    /// What is installed.
    Peers {
        /// FlashAttention-3 as a library.
        flash_attn_3: Option<PathBuf>,
    },
    /// A function of the user's own.
    Candidate {
        /// What it is called in rows.
        name: String,
        file: PathBuf,
        function: String,
        /// How long it may take for one answer.
        patience: Duration,
    },
}

/// Python, started when it is needed.
pub struct Python {
    program: String,
    calls: Calls,
    session: Option<Session>,
    starts: usize,
    /// What it said of itself when it was last started.
    said: Hello,
}

impl Python {
    pub fn new(program: String, calls: Calls) -> Self {
        Self {
            program,
            calls,
            session: None,
            starts: 0,
            said: Hello::default(),
        }
    }

    /// Starts Python, unless it runs, and returns what it has to say of itself.
    pub fn start(&mut self) -> Result<&Hello, SessionError> {
        if self.session.is_some() {
            return Ok(&self.said);
        }
        if self.starts == STARTS {
            return Err(refused(format!(
                "Python ended {STARTS} times and is not started again"
            )));
        }
        self.starts += 1;
        let start = |library| Session::start(&self.program, SCRIPT, library);
        let (session, hello) = match &self.calls {
            Calls::Peers { flash_attn_3 } => {
                let mut session = start(flash_attn_3.as_deref())?;
                let hello = session.hello()?;
                (session, hello)
            }
            Calls::Candidate {
                name,
                file,
                function,
                patience,
            } => {
                let mut session = start(None)?;
                // To import torch takes no patience with the candidate, and fails for other reasons than its file.
                session.begin()?;
                let mut session = session.with_patience(*patience);
                let hello =
                    session
                        .load(name, file, function)
                        .map_err(|error| SessionError::Load {
                            source: Box::new(error),
                        })?;
                (session, hello)
            }
        };
        self.said = hello;
        self.session = Some(session);
        Ok(&self.said)
    }

    /// Asks the running Python. One that does not work any more is ended.
    pub fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let session = self
            .session
            .as_mut()
            .ok_or_else(|| refused("Python has ended".to_string()))?;
        let answer = ask(session);
        if answer.as_ref().is_err_and(SessionError::is_fatal) {
            self.session = None;
        }
        answer
    }
}

fn refused(reason: String) -> SessionError {
    SessionError::Refused { reason }
}

/// A folder for tensors that go to Python and back; it is removed with its contents.
pub struct Exchange(PathBuf);

impl Exchange {
    /// Makes it, under the system's folder for temporary files.
    pub fn new() -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("compare-peers-{}", std::process::id()));
        // Python is told of files in JSON, which is UTF-8.
        if path.to_str().is_none() {
            return Err(BenchError::NoText { path });
        }
        std::fs::create_dir_all(&path).map_err(|source| BenchError::Exchange {
            path: path.clone(),
            source,
        })?;
        Ok(Self(path))
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, BenchError> {
        let path = self.path(name);
        match std::fs::write(&path, bytes) {
            Ok(()) => Ok(path),
            Err(source) => Err(BenchError::Exchange { path, source }),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What problems are measured with.
pub struct Bench<'a> {
    pub device: &'a CudaDevice,
    pub stages: &'a [LoadedStage],
    /// What the record says of it.
    pub builds: &'a [StageBuild],
    /// The record that is completed.
    pub record: &'a Record,
    /// How graphs are made.
    pub plan: Plan,
    /// What an empty kernel takes.
    pub zero_us: f64,
    /// Where tensors go.
    pub exchange: Exchange,
}

/// One of ours, ready to be timed.
struct Ours<'a> {
    arm: Arm<'a>,
    stage: &'a StageBuild,
    variant: String,
    probability: Probability,
    /// Microseconds per launch, roughly.
    us: f64,
}

impl Ours<'_> {
    /// One sample, in microseconds per launch.
    fn chunk(&mut self, plan: &Plan) -> Result<f64, CudaError> {
        launch_us(&mut self.arm, plan, LEAD_IN * chunk_us(self.us))?;
        launch_us(&mut self.arm, plan, chunk_us(self.us))
    }
}

/// A peer that was not timed, and why.
type Lost = (String, String);

/// A peer whose graph is built.
struct Ready {
    peer: String,
    /// Which of the Pythons has it.
    of: usize,
    /// Microseconds per call, roughly.
    us: f64,
    /// Why there is no graph, if there is none.
    eager: Option<String>,
    /// Which share of the time that passed here it told of, chunk by chunk.
    told: Vec<f64>,
}

/// What can be timed.
struct Prepared {
    /// Of each graph: whole rotations over the sets, so that each has an output to judge.
    launches: usize,
    ready: Vec<Ready>,
    lost: Vec<Lost>,
}

/// `peers` of a Python, with why none of them can be timed.
fn all_lost(peers: &[String], error: &SessionError) -> Vec<Lost> {
    let reason = error.to_string();
    let lost = peers.iter().map(|peer| (peer.clone(), reason.clone()));
    lost.collect()
}

/// Launches of a graph where none of ours stands beside it: as many as would be of ours, by the first peer that can be tried.
/// `given` are Pythons with their peers; `prepare` builds a peer's graph of so many launches, and returns the microseconds of
/// one. A Python that ends goes from `given` to `lost`.
pub fn launches_of_peers(
    plan: &Plan,
    sets: usize,
    given: &mut Vec<(usize, Vec<String>)>,
    lost: &mut Vec<Lost>,
    mut prepare: impl FnMut(usize, &str, usize) -> Result<f64, SessionError>,
) -> usize {
    let mut at = 0;
    while at < given.len() {
        let (of, peers) = &given[at];
        let mut ended = None;
        for peer in peers {
            match settled(plan, sets, |launches| prepare(*of, peer, launches)) {
                Ok(launches) => return launches,
                Err(error) if error.is_fatal() => {
                    ended = Some(all_lost(peers, &error));
                    break;
                }
                // It is asked again with the others, and says so there.
                Err(_) => {}
            }
        }
        match ended {
            Some(gone) => {
                lost.extend(gone);
                given.remove(at);
            }
            None => at += 1,
        }
    }
    sets
}

/// How often a graph is built anew until it is long enough. What starting one takes is in the time of its launches, the less the
/// longer it is.
const SETTLING: usize = 4;

fn settled<E>(
    plan: &Plan,
    sets: usize,
    mut prepare: impl FnMut(usize) -> Result<f64, E>,
) -> Result<usize, E> {
    let mut launches = sets;
    for _ in 0..SETTLING {
        let filling = plan.launches_per_sample(prepare(launches)?, sets);
        if filling <= launches {
            break;
        }
        launches = filling;
    }
    Ok(launches)
}

/// What was measured of one problem.
pub struct Timed {
    pub place: Place,
    /// What the buffers amount to.
    pub cache: &'static str,
    pub speed_of_light: SpeedOfLight,
    pub ours: Vec<Sampled>,
    pub theirs: Vec<Sampled>,
    /// Peers that were not timed, and why.
    pub lost: Vec<Lost>,
}

impl Timed {
    /// A row per arm, and one per pair of ours and a peer.
    pub fn rows(&self) -> Result<Vec<Row>, SampleError> {
        let arms = self.ours.iter().chain(&self.theirs);
        let mut rows = arms
            .map(|arm| arm.row(&self.place, self.cache))
            .collect::<Result<Vec<_>, _>>()?;
        for theirs in &self.theirs {
            rows.extend(pairs(
                theirs,
                &self.ours,
                &self.place,
                &self.speed_of_light,
            )?);
        }
        rows.extend(self.absent());
        Ok(rows)
    }

    /// A row for each peer that was not timed.
    pub fn absent(&self) -> impl Iterator<Item = Row> {
        let on = || On::Problem(self.place.clone());
        self.lost
            .iter()
            .map(move |(peer, reason)| absent(peer, on(), reason))
    }
}

impl<'a> Bench<'a> {
    /// Measures one problem.
    pub fn measure(&self, item: &Item, pythons: &mut [&mut Python]) -> Result<Timed, BenchError> {
        // No library but ours takes a scale for each head.
        let mut bench = TimedProblem::of(self.device, &item.problem, Inputs::with_one_scale)?;
        let speed_of_light = bench.speed_of_light(self.device, self.zero_us);
        let mut ours = Vec::new();
        for id in &item.stages {
            ours.extend(self.fastest(id, item, &bench)?);
        }
        let mut launches = None;
        for arm in &mut ours {
            launches = launches.max(Some(arm.arm.graph_launches(&self.plan)?));
        }
        for arm in &mut ours {
            arm.arm.resize_graph(launches.expect("that of an arm"))?;
        }
        let Prepared {
            launches,
            mut ready,
            mut lost,
        } = self.prepare(&bench, launches, pythons)?;
        let samples = loop {
            match self.sample(&mut ours, &mut ready, launches, pythons) {
                Ok(samples) => break samples,
                Err(Interrupted::Ours(error)) => return Err(error.into()),
                // What its process had built went with it; the others go on.
                Err(Interrupted::Python(of, error)) => {
                    let (gone, stay) = ready.into_iter().partition(|ready| ready.of == of);
                    ready = stay;
                    let gone: Vec<Ready> = gone;
                    lost.extend(gone.into_iter().map(|gone| (gone.peer, error.to_string())));
                }
            }
        };
        let (of_ours, of_peers) = samples.split_at(ours.len());
        let mut theirs = Vec::new();
        for (ready, us) in ready.into_iter().zip(of_peers) {
            match self.finish(&ready, us, &mut bench, pythons[ready.of]) {
                Ok(sampled) => theirs.push(sampled),
                Err(error) => lost.push((ready.peer, error.to_string())),
            }
        }
        let mut arms = Vec::new();
        for (device_us, ours) in of_ours.iter().zip(&mut ours) {
            arms.push(finish_ours(device_us, ours, &mut bench)?);
        }
        Ok(Timed {
            place: item.place.clone(),
            cache: bench.pool.rotation().state.label(),
            speed_of_light,
            ours: arms,
            theirs,
            lost,
        })
    }

    /// One problem of the growth: the fastest of ours alone, as a share of the rate that a matrix product reached.
    pub fn alone(&self, item: &Item, matrix_flops: f64) -> Result<Option<Row>, BenchError> {
        let mut bench = TimedProblem::new(self.device, &item.problem)?;
        let mut fastest: Option<Ours<'_>> = None;
        for id in &item.stages {
            let ours = self.fastest(id, item, &bench)?;
            fastest = fastest
                .into_iter()
                .chain(ours)
                .min_by(|a, b| a.us.total_cmp(&b.us));
        }
        let Some(mut ours) = fastest else {
            return Ok(None);
        };
        let device_us = (0..ALONE_SAMPLES)
            .map(|_| ours.chunk(&self.plan))
            .collect::<Result<Vec<f64>, CudaError>>()?;
        let sampled = finish_ours(&device_us, &mut ours, &mut bench)?;
        let row = sampled.row(&item.place, bench.pool.rotation().state.label())?;
        let rate = row
            .value(Metric::P50)
            .map(|us| item.problem.flops() as f64 / (us * 1e-6));
        // A wrong output has no rate.
        let share = rate
            .filter(|_| row.failure().is_none())
            .map(|rate| rate / matrix_flops);
        Ok(share.map(|share| row.figure(Metric::PeakShare, share)))
    }

    /// The fastest variant that may stand for a stage, by a trial where the record does not say.
    fn fastest(
        &self,
        id: &str,
        item: &Item,
        bench: &TimedProblem,
    ) -> Result<Option<Ours<'a>>, BenchError> {
        let find = (
            by_id(self.builds, id),
            self.stages.iter().find(|s| s.info().id == id),
        );
        let (Some(build), Some(stage)) = find else {
            return Ok(None);
        };
        let mut best: Option<Ours<'a>> = None;
        for variant in candidates(self.record, build, &item.place) {
            let Ok(prepared) = stage.prepare(&variant, &bench.problem) else {
                continue;
            };
            let mut arm = self.device.arm(stage, &prepared, &bench.pool)?;
            let us = launch_us(&mut arm, &self.plan, TRIAL_US)?;
            if best.as_ref().is_none_or(|best| us < best.us) {
                best = Some(Ours {
                    arm,
                    stage: build,
                    variant,
                    probability: prepared.kernel.probability,
                    us,
                });
            }
        }
        Ok(best)
    }

    /// Hands the problem to each Python and builds every peer's graph, of so many launches as ours have, if there are any.
    fn prepare(
        &self,
        bench: &TimedProblem,
        launches: Option<usize>,
        pythons: &mut [&mut Python],
    ) -> Result<Prepared, BenchError> {
        let mut contents = Vec::new();
        for (index, inputs) in bench.inputs.iter().enumerate() {
            let file =
                |name: &str, bytes: &[u8]| self.exchange.write(&format!("{name}{index}"), bytes);
            contents.push([
                file("q", &inputs.q.bytes)?,
                file("k", &inputs.k.bytes)?,
                file("v", &inputs.v.bytes)?,
            ]);
        }
        let sets = bench.pool.rotation().sets;
        let scale = |operand: &Operand| operand.scales.first().copied();
        let scales = |of: &Inputs| {
            [&of.q, &of.k, &of.v]
                .into_iter()
                .filter_map(scale)
                .collect()
        };
        let scales: Vec<Vec<f32>> = bench.inputs.iter().map(scales).collect();
        let (mut given, mut lost) = (Vec::new(), Vec::new());
        for (of, python) in pythons.iter_mut().enumerate() {
            let mut peers = python.said.peers.clone();
            peers.retain(|peer| takes(peer, bench.problem.dtype));
            let is_taken =
                |peer: &String| is_candidate(peer) || unsupported(&bench.problem).is_none();
            let (peers, refused): (Vec<String>, Vec<String>) =
                peers.into_iter().partition(is_taken);
            let reason = unsupported(&bench.problem).unwrap_or_default();
            lost.extend(refused.into_iter().map(|peer| (peer, reason.to_string())));
            if peers.is_empty() {
                continue;
            }
            let started = python.start().map(drop);
            let problem = started.and_then(|()| {
                python.ask(|session| session.problem(&bench.problem, &contents, &scales, sets))
            });
            match problem {
                Ok(()) => given.push((of, peers)),
                Err(error) => lost.extend(all_lost(&peers, &error)),
            }
        }
        let launches = launches.unwrap_or_else(|| {
            launches_of_peers(
                &self.plan,
                sets,
                &mut given,
                &mut lost,
                |of, peer, count| {
                    let prepared = pythons[of].ask(|session| session.prepare(peer, count))?;
                    Ok(prepared.device_us)
                },
            )
        });
        let mut ready = Vec::new();
        for (of, peers) in given {
            let (mut of_this, mut not) = (Vec::new(), Vec::new());
            for peer in &peers {
                match pythons[of].ask(|session| session.prepare(peer, launches)) {
                    Ok(prepared) => of_this.push(Ready {
                        peer: peer.clone(),
                        of,
                        us: prepared.device_us,
                        eager: prepared.eager,
                        told: Vec::new(),
                    }),
                    // The graphs that were built went with it.
                    Err(error) if error.is_fatal() => {
                        (of_this, not) = (vec![], all_lost(&peers, &error));
                        break;
                    }
                    Err(error) => not.push((peer.clone(), error.to_string())),
                }
            }
            ready.extend(of_this);
            lost.extend(not);
        }
        Ok(Prepared {
            launches,
            ready,
            lost,
        })
    }

    /// Device times of ours, then of theirs.
    fn sample(
        &self,
        ours: &mut [Ours<'_>],
        peers: &mut [Ready],
        launches: usize,
        pythons: &mut [&mut Python],
    ) -> Result<Vec<Vec<f64>>, Interrupted> {
        let (arms, count) = (ours.len() + peers.len(), ours.len());
        let one = |arm: usize| match ours.get_mut(arm) {
            Some(ours) => Ok(ours.chunk(&self.plan)?),
            None => {
                let Ready {
                    peer, of, us, told, ..
                } = &mut peers[arm - count];
                let replays = (chunk_us(*us) / (*us * launches as f64).max(1.0))
                    .ceil()
                    .max(1.0);
                let lead_in = (LEAD_IN * replays).ceil();
                let start = Instant::now();
                let took = pythons[*of]
                    .ask(|session| session.chunk(peer, lead_in as usize, replays as usize))
                    .map_err(|error| Interrupted::Python(*of, error))?;
                let here = start.elapsed().as_secs_f64() * 1e6;
                told.push(took * launches as f64 * (lead_in + replays) / here);
                Ok(took)
            }
        };
        deciding_rounds(arms, count, self.plan.samples, one)
    }

    /// Single calls of a peer, and the gates on what it computed in the graph that was timed.
    fn finish(
        &self,
        ready: &Ready,
        device_us: &[f64],
        bench: &mut TimedProblem,
        python: &mut Python,
    ) -> Result<Sampled, SessionError> {
        let peer = ready.peer.as_str();
        if let Some(reason) = wrong_clock(&ready.told) {
            return Err(refused(reason));
        }
        let calls = python.ask(|session| session.calls(peer, CALLS))?;
        let files: Vec<PathBuf> = (0..bench.pool.rotation().sets)
            .map(|index| self.exchange.0.join(format!("o{index}")))
            .collect();
        let finished = python.ask(|session| session.finish(peer, &files))?;
        let format = bench.problem.dtype.output();
        // The graph was replayed on other values than it was captured on: each set has the content of the next one.
        let contents = bench.inputs.len();
        let outputs: Vec<(usize, Vec<f32>)> = files
            .iter()
            .enumerate()
            .map(|(set, file)| ((set + 1) % contents, format.decode_bytes(&take(file))))
            .collect();
        // P is of the type of the operands, as in all of these libraries.
        let probability = Probability::of_operands(bench.problem.dtype);
        let judged = bench.judge_dense(&outputs, probability, finished.e4m3_scale);
        let (single_us, host_us) = (calls.single_us, calls.host_us);
        Ok(Sampled {
            subject: peer.into(),
            device_us: device_us.to_vec(),
            single_us,
            host_us,
            judged,
            eager: ready.eager.clone(),
        })
    }
}

/// The same of ours.
fn finish_ours(
    device_us: &[f64],
    ours: &mut Ours<'_>,
    bench: &mut TimedProblem,
) -> Result<Sampled, BenchError> {
    let calls = ours.arm.calls(CALLS)?;
    let judged = bench.judge(&ours.arm.outputs()?, ours.probability);
    let subject = Subject::variant(&ours.stage.id, &ours.variant);
    let (single_us, host_us) = (calls.single_us, calls.host_us);
    Ok(Sampled {
        subject,
        device_us: device_us.to_vec(),
        single_us,
        host_us,
        judged,
        eager: None,
    })
}

/// How long a sample of an arm is that takes `us` microseconds per launch.
fn chunk_us(us: f64) -> f64 {
    CHUNK_US.max(CHUNK_LAUNCHES * us)
}

/// Microseconds per launch over about `us` microseconds of replays.
fn launch_us(arm: &mut Arm<'_>, plan: &Plan, us: f64) -> Result<f64, CudaError> {
    let graph = arm.graph_launches(plan)? as u64;
    let one = arm.device_time(graph, plan)?.as_secs_f64() * 1e6;
    let launches = graph * (us / one.max(0.1)).ceil().max(1.0) as u64;
    Ok(arm.device_time(launches, plan)?.as_secs_f64() * 1e6 / launches as f64)
}

/// The bytes of an output in a file, which is removed: an output that is not written must not be the one before.
pub fn take(path: &Path) -> Vec<u8> {
    // What cannot be read has no elements, which the gates fail.
    let bytes = std::fs::read(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    bytes
}

/// What ended a round.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    Ours(#[from] CudaError),
    /// Of which Python.
    #[error("{1}")]
    Python(usize, SessionError),
}
