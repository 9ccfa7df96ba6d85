use super::choose::items;
use super::*;
use crate::commands::cli::Cli;
use clap::Parser;
use common::format::Format;
use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
use common::serving::Cache;
use common::timing::sustained::{Load, Sustained};
use common::timing::{Comparison, Plan, SpeedOfLight, claim};
use common::verdict::{GateId, GateResult, Verdict};
use kernel_build::testing::write_program;
use measure::python::bench::{Graphs, PeerOutputs, Representatives};
use measure::python::pair::{
    Sampled, SustainedArms, pair, rounds, sustained_arms, without_wrong_peer, wrong_clock,
};
use measure::python::session::{Finished, Hello, Peer, Process, SCRIPT, SessionError};
use measure::timed_problem::DenseOutput;
use measure::timed_problem::Judged as OfBuffers;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use results::judge::View;
use results::judge::list::distinct;
use results::table::StageMeta;
use results::table::{Claim, ProblemPlace, Run};
use results::testing::{self, CPASYNC, PeerArm, ladder, of_e4m3_alone, samples, timed};
use serde::de::IgnoredAny;
use std::convert::Infallible;
use std::process::Command;
use std::time::Duration;

/// A Python that answers as `peers.py` does, without torch.
const STUB: &str = r#"
import json, sys
answers = {
    "hello": {"software": {"torch": "2.11.0"}, "gpu": "NVIDIA H200", "uuid": "unknown",
              "peers": [{"name": "torch-flash", "dtypes": ["f16", "bf16"], "dense": True, "decodes": True,
                         "serves": False}],
              "absent": [{"subject": "flash-attn", "by": "peers", "note": "not installed"}]},
    "prepare": 10.0,
    "finish": {"host_us": [20.0, 21.0], "e4m3_scale": 64.0, "sets": [0, 1]},
}
for line in sys.stdin:
    command = json.loads(line)
    if command.get("peer") == "torch-cudnn":
        print(json.dumps({"refused": "RuntimeError: No available kernel"}))
    else:
        print(json.dumps({"ok": answers[command["do"]]}))
"#;

fn peer_sampled(subject: &str, us: f64, is_right: bool) -> Sampled {
    let gates = [GateId::C1, GateId::C2, GateId::C3]
        .map(|gate| GateResult::judge(gate, is_right || gate != GateId::C2, "too large"));
    Sampled {
        subject: subject.into(),
        device_us: samples(us),
        sustained: None,
        host_us: Some(samples(20.0)),
        judged: OfBuffers {
            max_abs: 1.5e-4,
            gates: gates.to_vec(),
        },
    }
}

fn peer(name: &str) -> Peer {
    Peer {
        name: name.into(),
        dtypes: vec![Dtype::F16, Dtype::Bf16],
        dense: true,
        decodes: true,
        serves: false,
        caches: false,
    }
}

/// Starts `script` in Python, if there is one. CI has.
fn python(script: &str) -> Option<Process> {
    let has_python = Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    assert!(
        has_python || std::env::var_os("CI").is_none(),
        "CI tests with Python"
    );
    has_python.then(|| Process::start("python3", script).unwrap())
}

/// Returns the places of peers that are left when a session on this shape has begun.
fn places_after_begin(shape: &str) -> Vec<String> {
    let item = Item {
        place: ProblemPlace::new(shape, Dtype::F16, Mask::Full),
        problem: mission(),
        stages: vec![],
        tried: vec![],
        library: None,
    };
    let mut run = timed(testing::US)
        .peers("mission", 10.0, &[PeerArm::right("torch-default", 20.0)])
        .with_row(Row::absent_peer("torch-flash", None, "not there"));
    let before = run.table.rows_by(Source::Gpu).count();
    begin_session(&mut run, &[item]);
    assert_eq!(run.table.rows_by(Source::Gpu).count(), before);
    let peers = run.table.rows_by(Source::Peers);
    distinct(peers.map(|row| row.place().to_string()))
}

#[test]
fn what_a_session_measures_again_goes() {
    assert_eq!(places_after_begin("mission"), [""; 0]);
    assert_eq!(places_after_begin("long"), ["mission f16 full"]);
}

#[test]
fn a_run_has_a_peer_once_one_was_timed() {
    let of_ours = timed(testing::US).peers("mission", 10.0, &[]);
    assert!(!has_peer(&View::alone(&of_ours)));
    let flash = [PeerArm::right("torch-flash", 16.0)];
    let of_both = timed(testing::US).peers("mission", 10.0, &flash);
    assert!(has_peer(&View::alone(&of_both)));
}

fn mission() -> Problem {
    Problem::new(Shape::bhsd(1, 8, 512, 64), Dtype::F16, Mask::Causal).unwrap()
}

#[test]
fn python_is_asked_and_answers() {
    let Some(mut session) = python(STUB) else {
        return;
    };
    let hello = Hello {
        software: [("torch".to_string(), "2.11.0".to_string())].into(),
        gpu: Some("NVIDIA H200".into()),
        uuid: "unknown".into(),
        peers: vec![peer("torch-flash")],
        absent: vec![Row::absent_peer("flash-attn", None, "not installed")],
    };
    assert_eq!(session.ask::<Hello>("hello", json!({})).unwrap(), hello);
    let flash = json!({ "peer": "torch-flash" });
    let us: f64 = session.ask("prepare", flash.clone()).unwrap();
    assert_eq!(us, 10.0);
    let cudnn = json!({ "peer": "torch-cudnn" });
    let refused = session.ask::<f64>("prepare", cudnn).unwrap_err();
    assert_eq!(refused.to_string(), "RuntimeError: No available kernel");
    assert!(!refused.is_fatal());
    let finished: Finished = session.ask("finish", flash).unwrap();
    assert_eq!(finished.host_us, [20.0, 21.0]);
    assert_eq!(finished.e4m3_scale, Some(64.0));
    assert_eq!(finished.sets, [0, 1]);
}

/// `peers.py` on a clock of its own: a call of 40 launches takes the host 5 µs and the GPU 600, the
/// first of all a second.
const ON_A_CLOCK: &str = r#"
import types

now, queued = 10.0, 0
time.perf_counter = lambda: now

def call(q, k, v):
    global now, queued
    now, queued = now + (5e-6 if now > 11 else 2.0), queued + 40
    assert queued <= 1000, "the host waits for the queue"

def synchronize():
    global now, queued
    now, queued = now + 600e-6 * queued / 40, 0

worker = object.__new__(Worker)
worker.torch = types.SimpleNamespace(no_grad=contextlib.nullcontext)
worker.driver = types.SimpleNamespace(synchronize=synchronize)
worker.device, worker.candidate = "cuda", None
worker.sets = {"bhsd": [(1, 2, 3)] * 4}
os.read(COMMANDS, 1 << 16)
print(json.dumps({"ok": worker.host_us(Peer(call, HALVES))}), file=ANSWERS)
"#;

#[test]
fn the_hosts_time_of_a_call_is_that_of_calls_back_to_back_without_what_the_gpu_takes() {
    let script = SCRIPT.strip_suffix("main()\n").unwrap();
    let Some(mut session) = python(&format!("{script}{ON_A_CLOCK}")) else {
        return;
    };
    let host_us: Vec<f64> = session.ask("finish", json!({})).unwrap();
    let is_five = |us: &f64| (us - 5.0).abs() < 1e-3;
    assert!(host_us.iter().all(is_five), "{host_us:?}");
    assert_eq!(host_us.len(), 10);
}

/// A refusal leaves the process as it is, and one that ended is started again, three times in all.
#[test]
fn python_is_started_again_where_it_ended() {
    let Some(_) = python("") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stub");
    std::fs::write(&path, format!("#!/usr/bin/env python3\n{STUB}")).unwrap();
    let mut executable = Command::new("chmod");
    executable.arg("+x").arg(&path).status().unwrap();
    let mut python = Python::new(path.display().to_string(), None);
    for _ in 0..3 {
        python.start().unwrap();
        let mut asks = |command, peer| python.ask::<f64>(command, json!({ "peer": peer }));
        assert!(asks("prepare", "torch-cudnn").is_err());
        assert_eq!(asks("prepare", "torch-flash").unwrap(), 10.0);
        assert!(asks("no such", "").unwrap_err().is_fatal());
    }
    assert!(!python.start().unwrap_err().is_fatal());
}

/// Returns the error of a Python that is asked for a chunk. It stays dead when it is asked again.
fn chunk_error(session: &mut Process) -> SessionError {
    let flash = json!({ "peer": "torch-flash" });
    let error = session.ask::<f64>("chunk", flash.clone()).unwrap_err();
    let again = session.ask::<f64>("chunk", flash).unwrap_err();
    assert_eq!(again.is_fatal(), error.is_fatal());
    error
}

/// Checks the error of a Python that has to be started anew.
#[track_caller]
fn assert_fatal(script: &str, expected: &str) {
    if let Some(mut session) = python(script) {
        let error = chunk_error(&mut session);
        assert_eq!(error.to_string(), expected);
        assert!(error.is_fatal());
    }
}

#[test]
fn a_python_that_ends_is_an_error_with_its_last_words() {
    assert_fatal(
        "import sys; input(); sys.exit('CUDA error: lost')",
        "Python ended during `chunk torch-flash`: CUDA error: lost",
    );
}

#[test]
fn a_python_that_does_not_answer_is_killed() {
    let Some(mut session) = python("input(); input()") else {
        return;
    };
    session.timeout = Duration::from_millis(100);
    let error = chunk_error(&mut session);
    assert_eq!(
        error.to_string(),
        "Python did not answer `chunk torch-flash` within 0.1 s and was killed"
    );
    assert!(error.is_fatal());
}

#[test]
fn a_python_without_torch_refuses_and_stays() {
    let script = format!("import sys; sys.modules['torch'] = None\n{SCRIPT}");
    let Some(mut session) = python(&script) else {
        return;
    };
    let error = chunk_error(&mut session);
    assert_eq!(
        error.to_string(),
        "ModuleNotFoundError: import of torch halted; None in sys.modules"
    );
    assert!(!error.is_fatal());
}

#[test]
fn a_line_that_is_no_answer_is_shown() {
    assert_fatal(
        "input(); print('Segmentation fault'); input()",
        "Python answered `chunk torch-flash` with 'Segmentation fault'",
    );
}

#[test]
fn an_answer_of_another_form_is_shown() {
    for answer in [r#"{"ok": true}"#, r#"{"fine": 1.0}"#, r#"{"ok": null}"#] {
        assert_fatal(
            &format!("input(); print('{answer}'); input()"),
            &format!("Python answered `chunk torch-flash` with '{answer}'"),
        );
    }
}

#[test]
fn a_python_that_is_not_there_is_named_with_the_flag_that_chooses_another() {
    let error = Process::start("no-such-python", SCRIPT)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("no-such-python"), "{error}");
    assert!(error.contains("--python"), "{error}");
}

#[test]
fn rounds_go_there_and_back_so_that_a_drift_cancels() {
    let mut order = Vec::new();
    let Ok(taken) = rounds(3, 0, 3, |arm| {
        order.push(arm);
        // Equal arms on a clock that sinks steadily.
        Ok::<_, Infallible>(10.0 + 0.01 * order.len() as f64)
    });
    assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
    assert!(taken.iter().all(|samples| samples.len() == 4));
    let comparison = Comparison::new(&taken[0], &taken[2]).unwrap();
    assert!(
        (comparison.ratios.mean.value - 1.0).abs() < 1e-12,
        "{comparison:?}"
    );
    assert_eq!(
        rounds(2, 0, 2, |arm| if arm == 1 { Err("lost") } else { Ok(1.0) }),
        Err("lost")
    );
}

/// Returns how many samples each arm gets: ours, theirs, and a peer that is never the fastest and
/// as noisy as can be.
fn samples_taken(ours_us: f64, theirs_us: f64) -> Vec<usize> {
    let mut draw = 0_u32;
    let Ok(arms) = rounds(3, 1, 20, |arm| {
        draw += 1;
        let scatter = f64::from(draw.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        Ok::<f64, Infallible>(match arm {
            0 => ours_us * (1.0 + 0.02 * scatter),
            1 => theirs_us * (1.0 + 0.02 * scatter),
            _ => 100.0 * (1.0 + scatter),
        })
    });
    arms.iter().map(Vec::len).collect()
}

#[test]
fn rounds_end_as_soon_as_it_is_decided_who_is_faster() {
    assert_eq!(samples_taken(10.0, 12.0), [20; 3]);
    assert_eq!(samples_taken(10.0, 8.0), [20; 3]);
}

#[test]
fn rounds_go_on_as_long_as_they_may_while_nothing_is_decided() {
    assert_eq!(samples_taken(10.0, 10.0), [80; 3]);
    let without_meaning = samples_taken(f64::NAN, 10.0);
    assert_eq!(without_meaning, [80; 3]);
}

#[test]
fn rounds_without_a_rival_end_at_once() {
    // Nobody to be faster than, or nobody who could be.
    for ours in [0, 2] {
        let Ok(samples) = rounds(2, ours, 20, |_| Ok::<_, Infallible>(1.0));
        assert_eq!(samples[0].len(), 20);
    }
}

/// A look after each pass is one more chance to be fooled: of arms that are the same at most 1 in
/// 20 may be decided for ours.
#[test]
fn looking_after_each_pass_fools_nobody() {
    for scatter in [0.01, 0.06] {
        let fooled = (0..200).filter(|seed| is_fooled(*seed, scatter)).count();
        assert!(fooled <= 10, "{fooled} of 200 with a scatter of {scatter}");
    }
}

/// Whether ours is judged to be faster, of two arms that scatter alike.
fn is_fooled(seed: u64, scatter: f64) -> bool {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Ok(samples) = rounds(2, 1, 20, |_| {
        let uniform = f64::from(random.next_u32()) / f64::from(u32::MAX);
        Ok::<_, Infallible>(10.0 * (1.0 + scatter * uniform))
    });
    let pair = Comparison::new(&samples[1], &samples[0]).unwrap();
    claim::judge(&pair.ratios, pair.noise(), 1.0).verdict == Verdict::Pass
}

#[test]
fn a_process_that_tells_less_time_than_passes_has_another_clock() {
    assert_eq!(wrong_clock(&[0.71]), None);
    // One chunk that ended late is none of its clock's doing.
    assert_eq!(wrong_clock(&[0.97, 0.3, 0.98]), None);
    for reported in [
        &[0.69, 0.69, 0.69][..],
        // One chunk that is reported in full, of many that are not.
        &[0.5, 0.5, 0.99, 0.5],
        &[0.97, f64::NAN, f64::NAN],
        &[],
    ] {
        let reason = wrong_clock(reported).unwrap();
        assert!(
            reason.contains("of the time that passes here"),
            "{reported:?}: {reason}"
        );
    }
}

/// Returns a Python that has started and answers as [`STUB`] does: it reports an output of set 0
/// and one of set 1.
fn started_stub(folder: &tempfile::TempDir) -> Option<Python> {
    python("")?;
    let path = folder.path().join("stub");
    write_program(&path, &format!("#!/usr/bin/env python3\n{STUB}")).unwrap();
    let mut python = Python::new(path.display().to_string(), None);
    python.start().unwrap();
    Some(python)
}

/// Returns what is read of a graph over so many sets, of a process that reported such shares of the
/// time.
fn outputs_of_stub(
    label: &str,
    sets: usize,
    reported: &[f64],
) -> Option<anyhow::Result<PeerOutputs>> {
    let folder = tempfile::tempdir().unwrap();
    let mut python = started_stub(&folder)?;
    let exchange = Scratch::new(label).unwrap();
    let written = Format::F16.encode_bytes(&[1.0, 2.0]);
    exchange.write("o0", &written).unwrap();
    exchange.write("o1", &written[..2]).unwrap();
    let peer = "torch-flash".into();
    Some(PeerOutputs::ask(
        &mut python,
        &exchange,
        &peer,
        reported,
        sets,
        Format::F16,
    ))
}

#[test]
fn outputs_of_all_sets_are_read() {
    let Some(answer) = outputs_of_stub("all-sets", 2, &[0.97; 3]) else {
        return;
    };
    let read = answer.unwrap();
    let expected = [
        DenseOutput {
            set: 0,
            values: vec![1.0, 2.0],
        },
        DenseOutput {
            set: 1,
            values: vec![1.0],
        },
    ];
    assert_eq!(read.outputs, expected);
    assert_eq!(read.host_us, [20.0, 21.0]);
    assert_eq!(read.e4m3_scale, Some(64.0));
}

#[test]
fn a_set_without_an_output_is_refused() {
    let Some(read) = outputs_of_stub("missing-set", 3, &[0.97; 3]) else {
        return;
    };
    assert_eq!(
        read.unwrap_err().to_string(),
        "Python wrote no output of set 2"
    );
}

#[test]
fn outputs_of_a_process_with_another_clock_are_refused() {
    let Some(read) = outputs_of_stub("wrong-clock", 2, &[0.5; 3]) else {
        return;
    };
    let error = read.unwrap_err().to_string();
    assert!(
        error.starts_with("its process reports 50 % of the time that passes here"),
        "{error}"
    );
}

/// A worker without torch, whose graph over two sets holds these calls.
struct StubWorker {
    process: Process,
    folder: tempfile::TempDir,
}

impl StubWorker {
    fn new(is_candidate: bool, calls: &[&str]) -> Option<Self> {
        let script = SCRIPT.strip_suffix("main()\n").unwrap();
        let stub = include_str!("without_torch.py");
        let mut process = python(&format!("{script}{stub}"))?;
        let graph = json!({ "peer": "it", "candidate": is_candidate, "sets": 2, "calls": calls });
        process.ask::<IgnoredAny>("stub", graph).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Some(Self { process, folder })
    }

    fn prepare(&mut self, launches: usize) -> Result<f64, SessionError> {
        let arguments = json!({ "peer": "it", "launches": launches });
        self.process.ask("prepare", arguments)
    }

    fn finish(&mut self) -> Result<Finished, SessionError> {
        let chunk = json!({ "peer": "it", "lead_in": 1, "replays": 2 });
        self.process.ask::<f64>("chunk", chunk).unwrap();
        let output = self.folder.path().join("o");
        self.process
            .ask("finish", json!({ "peer": "it", "output": output }))
    }

    /// Returns the output of this number as the worker wrote it.
    fn written(&self, number: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("o{number}"))).unwrap()
    }
}

const COMPUTES: &str = "computes";

/// Returns why a graph of four calls is refused when it is finished.
fn refusal(is_candidate: bool, calls: [&str; 4]) -> Option<String> {
    let mut worker = StubWorker::new(is_candidate, &calls)?;
    worker.prepare(4).unwrap();
    Some(worker.finish().unwrap_err().to_string())
}

#[test]
fn equal_outputs_of_a_set_are_written_once() {
    for is_candidate in [false, true] {
        let Some(mut worker) = StubWorker::new(is_candidate, &[COMPUTES; 4]) else {
            return;
        };
        assert_eq!(worker.prepare(4).unwrap(), 1.0);
        assert_eq!(worker.finish().unwrap().sets, [0, 1]);
        assert_eq!(worker.written(1), "output of set 1");
    }
}

#[test]
fn every_output_that_differs_is_written_not_only_the_first_of_its_set() {
    let calls = [COMPUTES, COMPUTES, "computes otherwise", COMPUTES];
    let Some(mut worker) = StubWorker::new(false, &calls) else {
        return;
    };
    worker.prepare(4).unwrap();
    assert_eq!(worker.finish().unwrap().sets, [0, 1, 0]);
    assert_eq!(worker.written(2), "other bits");
}

#[test]
fn a_call_that_copies_what_another_computed_is_refused() {
    let Some(refused) = refusal(true, [COMPUTES, COMPUTES, "copies", COMPUTES]) else {
        return;
    };
    assert!(
        refused.contains("call 3 of 4 in the timed graph, where no other runs, does not write"),
        "{refused}"
    );
}

#[test]
fn a_call_that_computes_only_where_its_output_is_unwritten_is_refused() {
    let Some(refused) = refusal(true, ["computes where unwritten"; 4]) else {
        return;
    };
    assert!(
        refused
            .contains("a call takes 1.00 µs where inputs have changed and outputs are unwritten"),
        "{refused}"
    );
}

#[test]
fn a_call_that_launches_fewer_kernels_than_one_alone_is_refused() {
    let calls = [COMPUTES, COMPUTES, "launches nothing", COMPUTES];
    let Some(mut worker) = StubWorker::new(true, &calls) else {
        return;
    };
    let refused = worker.prepare(4).unwrap_err().to_string();
    assert!(
        refused.contains("call 3 of 4 in the timed graph launches 0 kernels, expected 1"),
        "{refused}"
    );
}

#[test]
fn an_output_in_memory_of_another_is_refused() {
    let calls = [COMPUTES, COMPUTES, "returns the first output", COMPUTES];
    let Some(mut worker) = StubWorker::new(true, &calls) else {
        return;
    };
    let refused = worker.prepare(4).unwrap_err().to_string();
    assert!(
        refused.contains("shares memory with another output"),
        "{refused}"
    );
}

#[test]
fn a_graph_that_leaves_out_a_set_is_refused() {
    let Some(mut worker) = StubWorker::new(false, &[COMPUTES; 4]) else {
        return;
    };
    let refused = worker.prepare(1).unwrap_err().to_string();
    assert!(
        refused.contains("a graph of 1 launches leaves out some of 2 sets"),
        "{refused}"
    );
}

#[test]
fn a_candidate_that_replaces_the_clock_is_refused() {
    let Some(mut worker) = StubWorker::new(true, &[COMPUTES; 4]) else {
        return;
    };
    worker.prepare(4).unwrap();
    worker
        .process
        .ask::<IgnoredAny>("replace", json!({}))
        .unwrap();
    let refused = worker.finish().unwrap_err().to_string();
    assert!(
        refused.contains("it has replaced torch.cuda.Event.elapsed_time"),
        "{refused}"
    );
}

/// Returns the launches of graphs of two peers whose call takes so long: starting a graph takes
/// 8 us.
fn launches_of(plan: &Plan, sets: usize, us: f64) -> usize {
    let mut graphs = Graphs {
        plan,
        sets,
        launches: None,
    };
    let mut launches = 0;
    for name in ["mine.py:f", "torch-math"] {
        let built = graphs.build(&[peer(name)], |_, count| {
            assert_eq!(count % sets, 0);
            launches = count;
            Ok(us + 8.0 / count as f64)
        });
        assert!(built.iter().all(Result::is_ok));
    }
    assert_eq!(graphs.launches, Some(launches));
    launches
}

#[test]
fn without_ours_a_graph_is_as_long_as_one_of_ours_and_rotates_over_all_sets() {
    let plan = Plan::default();
    let sample_us = plan.sample_time.as_secs_f64() * 1e6;
    for sets in 1..=4 {
        let launches = launches_of(&plan, sets, 5.0);
        assert!(launches as f64 * 5.0 > 0.9 * sample_us, "{sets}");
        assert_eq!(launches_of(&plan, sets, 1e4), sets);
    }
}

/// Pythons that build graphs of peers one after the other: each peer behaves as its name tells.
struct StubGraphs {
    /// The number of launches that the next graph has, if it is known.
    launches: Option<usize>,
    /// The numbers of launches that a Python was asked to build.
    requested: Vec<usize>,
}

impl StubGraphs {
    fn new(launches: Option<usize>) -> Self {
        Self {
            launches,
            requested: vec![],
        }
    }

    /// Returns a word for the graph of each peer of a Python: `built`, or the error.
    fn build(&mut self, names: &[&str]) -> Vec<String> {
        let mut graphs = Graphs {
            plan: &Plan::default(),
            sets: 4,
            launches: self.launches,
        };
        let peers: Vec<Peer> = names.iter().map(|name| peer(name)).collect();
        let built = graphs.build(&peers, |peer, count| {
            self.requested.push(count);
            match peer.name.as_str() {
                "ends" => Err(SessionError::Ended("ended".into())),
                "refuses" => Err(SessionError::Refused("refused".into())),
                "builds" => Ok(1e4),
                _ => Ok(1.0),
            }
        });
        self.launches = graphs.launches;
        let mut words = Vec::new();
        for graph in built {
            words.push(match graph {
                Ok(_) => "built".to_string(),
                Err(error) => error.to_string(),
            });
        }
        words
    }
}

#[test]
fn without_ours_the_first_graph_that_is_built_decides_the_launches() {
    let mut graphs = StubGraphs::new(None);
    assert_eq!(graphs.build(&["ends"]), ["ended"]);
    assert_eq!(graphs.launches, None);
    assert_eq!(graphs.build(&["refuses"]), ["refused"]);
    assert_eq!(graphs.launches, None);
    assert_eq!(graphs.build(&["builds"]), ["built"]);
    assert_eq!(graphs.launches, Some(4));
    assert_eq!(graphs.requested.len(), 3);
}

#[test]
fn beside_one_of_ours_all_graphs_have_its_launches() {
    let mut graphs = StubGraphs::new(Some(8));
    // What a Python built goes with it.
    assert_eq!(graphs.build(&["fast", "ends"]), ["ended"; 2]);
    assert_eq!(graphs.requested, [8; 2]);
    let mut others = StubGraphs::new(Some(8));
    assert_eq!(others.build(&["refuses", "fast"]), ["refused", "built"]);
    assert_eq!(others.requested, [8; 2]);
}

/// Returns the row of ours over a peer on mission; nothing where a side is wrong.
fn pair_on_mission(theirs: &Sampled, ours: &Sampled, speed_of_light: &SpeedOfLight) -> Option<Row> {
    let place = ProblemPlace::claims(Dtype::F16);
    pair(theirs, ours, &place, "warm L2", speed_of_light).unwrap()
}

/// Returns the speed of light where an empty launch takes so long.
fn empty_launch(us: f64) -> SpeedOfLight {
    SpeedOfLight::default().with_zero_line(us)
}

#[test]
fn a_ratio_is_the_peers_time_over_ours() {
    let theirs = peer_sampled("torch-flash", 16.0, true);
    let ours = peer_sampled(CPASYNC, 10.0, true);
    let row = pair_on_mission(&theirs, &ours, &empty_launch(2.0)).unwrap();
    assert_eq!(row.subject.as_str(), CPASYNC);
    assert_eq!(row.base(), Some(&"torch-flash".into()));
    let speedup = row.value(Metric::SpeedupP50).unwrap();
    assert_eq!(format!("{speedup:.3}"), "1.600");
    assert_eq!(row.failure(), None);
}

#[test]
fn a_side_whose_output_is_wrong_has_no_ratio() {
    let right = peer_sampled("torch-flash", 16.0, true);
    let wrong_ours = peer_sampled(CPASYNC, 10.0, false);
    assert_eq!(
        pair_on_mission(&right, &wrong_ours, &empty_launch(2.0)),
        None
    );
    let wrong_theirs = peer_sampled("torch-flash", 16.0, false);
    let ours = peer_sampled(CPASYNC, 10.0, true);
    assert_eq!(
        pair_on_mission(&wrong_theirs, &ours, &empty_launch(2.0)),
        None
    );
}

#[test]
fn an_impossible_time_fails() {
    let theirs = peer_sampled("torch-flash", 16.0, true);
    let ours = peer_sampled(CPASYNC, 10.0, true);
    let row = pair_on_mission(&theirs, &ours, &empty_launch(10.0)).unwrap();
    assert_eq!(row.subject.as_str(), CPASYNC);
    assert_eq!(row.base(), Some(&"torch-flash".into()));
    let reason = row.failure().unwrap();
    assert!(
        reason.contains("impossible: 10.000 us, below 11.000 us (1.1 x an empty"),
        "{reason}"
    );
}

#[test]
fn what_gates_said_stays_with_the_arm() {
    let place = ProblemPlace::claims(Dtype::F16);
    let wrong = peer_sampled("torch-cudnn", 8.0, false)
        .row(&place, "warm L2")
        .unwrap();
    let failed: Vec<GateId> = wrong.failed().map(|(gate, _)| gate).collect();
    assert_eq!(failed, [GateId::C2]);
    assert_eq!(wrong.conditions.as_deref(), Some("warm L2"));
    assert_eq!(wrong.value(Metric::Samples), Some(40.0));
    let host = peer_sampled("torch-cudnn", 20.0, true)
        .row(&place, "")
        .unwrap();
    assert_eq!(wrong.value(Metric::HostP50), host.value(Metric::P50));
}

/// Returns the counted time of an arm.
fn sustained(us: f64) -> Sustained {
    let load = Load {
        energy_mj: Some(0.7 * us),
        power_w: Some(700.0),
        ..Load::default()
    };
    Sustained {
        us: samples(us),
        load,
    }
}

#[test]
fn the_fastest_of_both_sides_and_the_librarys_choice_are_timed_sustained() {
    let ours = [samples(12.0), samples(10.0), samples(11.0)];
    let [slow_peer, peer] = [samples(20.0), samples(18.0)];
    let bursts = [&ours[0][..], &ours[1], &ours[2], &slow_peer, &peer];
    let fastest = SustainedArms {
        arms: vec![1, 4],
        peer: 4,
    };
    let with_library = SustainedArms {
        arms: vec![0, 1, 4],
        peer: 4,
    };
    assert_eq!(sustained_arms(&bursts, 3, None).as_ref(), Some(&fastest));
    assert_eq!(sustained_arms(&bursts, 3, Some(1)), Some(fastest));
    assert_eq!(sustained_arms(&bursts, 3, Some(0)), Some(with_library));
    // One side is empty.
    assert_eq!(sustained_arms(&bursts, 0, None), None);
    assert_eq!(sustained_arms(&bursts, 5, None), None);
    // What the library chooses may not have been timed in bursts.
    let library_alone = [&ours[0][..], &[], &slow_peer];
    assert_eq!(
        sustained_arms(&library_alone, 2, Some(1)),
        Some(SustainedArms {
            arms: vec![0, 1, 2],
            peer: 2,
        })
    );
}

/// Returns an arm that was timed in bursts, and sustained at the power limit.
fn sustained_arm(subject: &str, burst_us: f64, us: f64) -> Sampled {
    Sampled {
        sustained: Some(sustained(us)),
        ..peer_sampled(subject, burst_us, true)
    }
}

fn speedup(row: Row) -> Option<f64> {
    row.rounded().value(Metric::SpeedupP50)
}

#[test]
fn a_ratio_is_of_one_regime() {
    let ours = sustained_arm(CPASYNC, 10.0, 12.0);
    let theirs = sustained_arm("flash-attn-3", 15.0, 15.0);
    let burst = peer_sampled("torch-cudnn", 16.0, true);
    let light = SpeedOfLight::default();
    let of_sustained = pair_on_mission(&theirs, &ours, &light).unwrap();
    assert_eq!(
        of_sustained.conditions.as_deref(),
        Some("warm L2, sustained")
    );
    assert_eq!(speedup(of_sustained), Some(1.25));
    let of_bursts = pair_on_mission(&burst, &ours, &light).unwrap();
    assert_eq!(of_bursts.conditions, None);
    assert_eq!(speedup(of_bursts), Some(1.6));
    // What the library chose was timed sustained alone.
    let chosen = Sampled {
        device_us: vec![],
        ..sustained_arm("stage1-cpasync/cpasync-64x64", 10.0, 14.0)
    };
    assert!(pair_on_mission(&theirs, &chosen, &light).is_some());
    assert_eq!(pair_on_mission(&burst, &chosen, &light), None);
}

#[test]
fn the_row_of_an_arm_names_its_regime() {
    let place = ProblemPlace::claims(Dtype::F16);
    let ours = sustained_arm(CPASYNC, 10.0, 12.0);
    let own_row = ours.row(&place, "warm L2").unwrap().rounded();
    assert_eq!(own_row.conditions.as_deref(), Some("warm L2, sustained"));
    assert_eq!(own_row.value(Metric::P50), Some(12.01));
    assert_eq!(own_row.value(Metric::EnergyMj), Some(8.4));
    let burst = peer_sampled("torch-cudnn", 16.0, true);
    let burst_row = burst.row(&place, "warm L2").unwrap();
    assert_eq!(burst_row.conditions.as_deref(), Some("warm L2"));
}

/// Returns the arms that are left where the fastest peer is right or wrong. The first three were
/// timed sustained, the second, which the library chose, alone so.
fn arms_beside_peer(is_right: bool) -> Vec<Sampled> {
    let chosen = Sampled {
        device_us: vec![],
        ..sustained_arm("stage1-cpasync/cpasync-64x64", 10.0, 20.0)
    };
    let rival = Sampled {
        sustained: Some(sustained(20.0)),
        ..peer_sampled("flash-attn-3", 15.0, is_right)
    };
    let mut arms = vec![
        sustained_arm(CPASYNC, 10.0, 20.0),
        chosen,
        rival,
        peer_sampled("torch-cudnn", 16.0, true),
    ];
    without_wrong_peer(&mut arms, &"flash-attn-3".into());
    arms
}

fn count_sustained(arms: &[Sampled]) -> usize {
    arms.iter().filter(|arm| arm.sustained.is_some()).count()
}

#[test]
fn sustained_times_stay_where_the_peer_is_right() {
    let arms = arms_beside_peer(true);
    assert_eq!(arms.len(), 4);
    assert_eq!(count_sustained(&arms), 3);
}

#[test]
fn bursts_stay_where_the_peer_that_was_timed_sustained_is_wrong() {
    let arms = arms_beside_peer(false);
    assert_eq!(arms.len(), 3);
    assert_eq!(count_sustained(&arms), 0);
}

/// A steady replay is no sample of the burst, which `finish` compares a candidate with.
#[test]
fn a_graph_is_replayed_for_a_second_beside_its_chunks() {
    let Some(mut worker) = StubWorker::new(true, &[COMPUTES; 4]) else {
        return;
    };
    worker.prepare(4).unwrap();
    let steady = json!({ "peer": "it", "replays": 5 });
    let us: f64 = worker.process.ask("steady", steady).unwrap();
    assert_eq!(us, 1.0);
    assert_eq!(worker.finish().unwrap().sets, [0, 1]);
}

fn args(flags: &[&str]) -> PeersArgs {
    match Cli::parse_from(["compare", "peers"].iter().chain(flags)).command {
        Some(crate::commands::cli::Command::Peers(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn item(place: ProblemPlace) -> Item {
    Item {
        problem: place.problem().unwrap(),
        place,
        stages: vec![],
        tried: vec![],
        library: None,
    }
}

/// Returns the remarks on mission in a run of a ladder that claims to beat a peer there.
fn lacking_on_mission(mut run: Run) -> Vec<String> {
    run.session.stages = testing::claiming();
    let items = [item(ProblemPlace::claims(Dtype::F16))];
    missing_claimants(&View::alone(&run), &items)
}

/// Peers are not timed alone.
#[test]
fn problems_without_a_kernel_of_ours_are_left_out() {
    let mut run = timed(testing::US).clean();
    for stage in &mut run.session.stages {
        for variant in &mut stage.variants {
            let kernels = &mut variant.kernels;
            kernels.retain(|kernel| kernel.facts.dtype != Dtype::E4m3);
        }
    }
    let places = [Dtype::F16, Dtype::E4m3].map(ProblemPlace::claims);
    let view = View::alone(&run);
    let kept = with_ours(&view, places.clone().map(item).into()).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].place, places[0]);
    let error = with_ours(&view, vec![item(places[1].clone())]).unwrap_err();
    let said = "the run has no variant that passes on mission e4m3 full";
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn a_problem_without_the_stage_that_claims_it_is_named() {
    let run = timed(testing::US)
        .clean()
        .without_rows_of_stage("stage1-cpasync");
    let lines = lacking_on_mission(run);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let start = "mission f16 full is timed without stage1-cpasync, which claims it";
    assert!(lines[0].starts_with(start), "{lines:?}");
}

#[test]
fn a_problem_with_the_stages_that_claim_it_lacks_nothing() {
    let run = timed(testing::US).clean();
    assert!(lacking_on_mission(run.clone()).is_empty());
    assert!(lacking_on_mission(run.without_rows_of_stage("stage0-scalar")).is_empty());
}

/// Returns a line for each problem that flags choose: the stages that are sampled, and in brackets
/// those that are tried.
fn chosen(builds: &[StageMeta], flags: &[&str]) -> Vec<String> {
    let args = args(flags);
    let stages = measure::select::stages(&args.stages, builds).unwrap();
    let mut lines = Vec::new();
    for item in items(&args.problems, &stages) {
        let sampled = item.stages.join(", ");
        let tried = item.tried.join(", ");
        lines.push(format!("{}: {sampled} ({tried})", item.place));
    }
    lines
}

#[test]
fn every_stage_is_sampled_on_mission_and_tried_elsewhere() {
    assert_eq!(
        chosen(&ladder(), &[])[..4],
        [
            "mission f16 full: stage0-scalar, stage1-cpasync ()",
            "mission f16 full cold:  (stage0-scalar, stage1-cpasync)",
            "mission f16 causal: stage0-scalar, stage1-cpasync ()",
            "mission_b2 f16 full:  (stage0-scalar, stage1-cpasync)",
        ]
    );
}

/// Small and large grids under both masks, and mission cold; everyday; decode in the element types
/// that there are.
#[test]
fn every_named_problem_is_chosen() {
    let small_and_large = 5 * 2 + 1 + 4 * 2;
    let everyday = 24;
    let decode = 4 * 2;
    let expected = small_and_large + everyday + decode;
    assert_eq!(chosen(&ladder(), &[]).len(), expected);
}

#[test]
fn sequences_as_they_are_served_are_chosen_where_a_type_is_asked_for() {
    let flags = ["--shapes", "varlen_llm"];
    assert!(chosen(&ladder(), &flags).is_empty());
    let with_type = [&flags[..], &["--dtypes", "bf16"]].concat();
    assert_eq!(
        chosen(&ladder(), &with_type),
        ["varlen_llm bf16 causal:  ()"]
    );
}

#[test]
fn a_peer_is_called_where_it_takes_the_sequences() {
    let problem =
        |shape: &str| Problem::new(parse_shape(shape).unwrap(), Dtype::F16, Mask::Full).unwrap();
    let dense = peer("torch-flash");
    assert!(dense.takes(&problem("mission")) && !dense.takes(&problem("varlen_encoder")));
    assert!(dense.takes(&problem("vit_72")), "a head_dim is no sequence");
    let varlen = Peer {
        dense: false,
        decodes: false,
        serves: true,
        ..peer("torch-varlen")
    };
    assert!(!varlen.takes(&problem("mission")) && varlen.takes(&problem("varlen_encoder")));
    let of_caches = Peer {
        dense: false,
        serves: true,
        ..peer("flashinfer")
    };
    let of_codes = Peer {
        caches: true,
        ..of_caches.clone()
    };
    assert!(of_codes.takes(&problem("fp8_cache")) && !of_caches.takes(&problem("fp8_cache")));
    assert!(dense.takes(&problem("decode_8k")) && !varlen.takes(&problem("decode_8k")));
    assert!(of_caches.takes(&problem("decode_8k")) && !of_caches.takes(&problem("mission")));
}

#[test]
fn a_shape_is_chosen_under_its_usual_masks() {
    assert_eq!(
        chosen(&ladder(), &["--shapes", "verify,cross_77"]),
        [
            "verify f16 causal:  (stage0-scalar, stage1-cpasync)",
            "verify e4m3 causal:  (stage0-scalar, stage1-cpasync)",
            "cross_77 f16 full:  (stage0-scalar, stage1-cpasync)",
        ]
    );
}

#[test]
fn a_mask_that_is_asked_for_is_chosen() {
    let flags = ["--shapes", "verify", "--masks", "full", "--dtypes", "f16"];
    assert_eq!(
        chosen(&ladder(), &flags),
        ["verify f16 full:  (stage0-scalar, stage1-cpasync)"]
    );
}

#[test]
fn stages_shapes_types_and_masks_are_those_that_are_asked_for() {
    let flags = [
        "--stages",
        "0",
        "--shapes",
        "big,1x8:2x64x64",
        "--dtypes",
        "e4m3",
        "--masks",
        "causal",
    ];
    assert_eq!(
        chosen(&ladder(), &flags),
        [
            "big e4m3 causal:  (stage0-scalar)",
            "1x8:2x64x64 e4m3 causal:  (stage0-scalar)",
        ]
    );
}

#[test]
fn mission_is_sampled_in_the_type_that_is_asked_for() {
    let flags = ["--shapes", "mission", "--masks", "full", "--dtypes", "e4m3"];
    assert_eq!(
        chosen(&ladder(), &flags),
        ["mission e4m3 full: stage0-scalar, stage1-cpasync ()"]
    );
}

#[test]
fn a_stage_takes_part_in_the_types_that_it_has() {
    let flags = [
        "--shapes", "wide", "--masks", "full", "--dtypes", "f16,e4m3",
    ];
    assert_eq!(
        chosen(&of_e4m3_alone(1), &flags),
        [
            "wide f16 full:  (stage0-scalar)",
            "wide e4m3 full:  (stage0-scalar, stage1-cpasync)",
        ]
    );
}

#[test]
fn what_a_stage_claims_is_sampled_and_nothing_else_of_its_type() {
    let mut builds = ladder();
    let over_peer = testing::claiming()[1].claims.pop().unwrap();
    builds[1].claims.push(Claim {
        place: ProblemPlace::new("big", Dtype::E4m3, Mask::Causal),
        ..over_peer
    });
    let mut lines = chosen(&builds, &[]);
    lines.retain(|line| line.contains("e4m3") && line.starts_with("big"));
    assert_eq!(lines, ["big e4m3 causal: stage1-cpasync (stage0-scalar)"]);
}

/// Each library is asked for what its users ask: decode of the function for caches, where there is
/// one, masks aligned bottom-right, and FP8 for E4M3 alone.
#[test]
fn libraries_are_called_as_their_users_call_them() {
    let script = SCRIPT.strip_suffix("main()\n").unwrap();
    let packages = r#"
def module(**names):
    return types.SimpleNamespace(**names)

def of(function, *names):
    def call(*tensors, **options):
        return " ".join([function, *(f"{name}={options[name]}" for name in names if name in options)]), "lse"
    return call

attention = of("flash_attn_func", "causal", "q_descale")
cached = of("flash_attn_with_kvcache", "causal", "q_descale", "cache_seqlens", "num_splits")
sdpa = of("sdpa", "is_causal", "attn_mask", "enable_gqa")
sys.modules["flash_attn_interface"] = module(flash_attn_func=attention, flash_attn_with_kvcache=cached)
sys.modules["flash_attn"] = module()
sys.modules["flash_attn.cute"] = module(flash_attn_func=attention)
sys.modules["torch.nn.attention"] = module(SDPBackend=module(MATH="MATH"), sdpa_kernel=contextlib.nullcontext)
sys.modules["torch.nn.attention.varlen"] = module(varlen_attn=None)
sys.modules["torch.nn.attention.bias"] = module(causal_lower_right=lambda q, k: f"lower-right {q}:{k}")
sys.modules["cudnn"] = module(create_handle=lambda: None)
sys.modules["flashinfer"] = module()
worker = object.__new__(Worker)
worker.torch = module(nn=module(functional=module(scaled_dot_product_attention=sdpa)))
worker.peers, worker.absent, worker.scale, worker.served = {}, {}, 1.0, None
for library in LIBRARIES:
    worker.add(*library)

def asked(name, queries, keys, causal, decode, scales=()):
    worker.causal, worker.lengths = causal, "lengths" if decode else None
    # Both layouts have as many rows here as heads.
    q, k = module(shape=(8, queries, queries, 64)), module(shape=(8, keys, keys, 64))
    try:
        return first(worker.peers[name].call(q, k, k, *scales))
    except ValueError as error:
        return str(error)

scale = module(expand=lambda *extents: extents)
found = {
    "decode": asked("flash-attn-3", 1, 9, False, True),
    "verify in E4M3": asked("flash-attn-3-fp8", 4, 9, True, True, [scale]),
    "prefill": asked("flash-attn-3", 9, 9, True, False),
    "decode without a function": asked("flash-attn-4", 1, 9, False, True),
    "torch, decode": asked("torch-default", 1, 9, False, True),
    "torch, verify": asked("torch-default", 4, 9, True, True),
    "torch, prefill": asked("torch-default", 9, 9, True, False),
    "cuDNN, verify": asked("cudnn-fp8", 4, 9, True, True),
}
found |= {name: " ".join(peer.dtypes) for name, peer in worker.peers.items()}
os.read(COMMANDS, 1 << 16)
print(json.dumps({"ok": [f"{case}: {call}" for case, call in found.items()]}), file=ANSWERS)
"#;
    let Some(mut session) = python(&format!("import types\n{script}{packages}")) else {
        return;
    };
    let calls: Vec<String> = session.ask("hello", json!({})).unwrap();
    insta::assert_snapshot!(calls.join("\n"), @r"
    decode: flash_attn_with_kvcache causal=False cache_seqlens=lengths num_splits=0
    verify in E4M3: flash_attn_with_kvcache causal=True q_descale=(8, 9) cache_seqlens=lengths num_splits=0
    prefill: flash_attn_func causal=True
    decode without a function: flash_attn_func causal=False
    torch, decode: sdpa is_causal=False enable_gqa=True
    torch, verify: sdpa attn_mask=lower-right 4:9 enable_gqa=True
    torch, prefill: sdpa is_causal=True
    cuDNN, verify: its causal mask is aligned top-left
    torch-default: f16 bf16
    flash-attn-4: f16 bf16
    flash-attn-3: f16 bf16
    flash-attn-3-fp8: e4m3
    cudnn-fp8: e4m3
    torch-varlen: f16 bf16
    flashinfer: f16 bf16
    flashinfer-xqa: f16 bf16
    ");
}

/// PyTorch computes on the processor: 3 queries of 2 heads, of which each sees the first 7 to 9
/// keys of a cache.
#[test]
fn decode_is_called_on_what_torch_makes_of_its_problem() {
    let Some(program) = python_with_torch() else {
        return;
    };
    let script = SCRIPT.strip_suffix("main()\n").unwrap();
    let decode = r#"
import tempfile

worker = Worker()
for library in ("torch-default", "sdpa", None, HALVES), ("torch-math", "sdpa", "MATH", HALVES):
    worker.add(*library)
worker.torch.manual_seed(0)
folder = tempfile.TemporaryDirectory()
contents = []
for name, extents in (("q", (1, 2, 3, 64)), ("k", (1, 1, 9, 64)), ("v", (1, 1, 9, 64))):
    path = os.path.join(folder.name, name)
    worker.write(path, worker.torch.randn(extents).half())
    contents.append({"file": path, "extents": extents, "scales": None})
os.read(COMMANDS, 1 << 16)
problem = {"dtype": "f16", "causal": True, "scale": 0.125, "decode": True, "contents": [contents], "sets": 2}
try:
    worker.problem(problem)
    found = [f"{worker.lengths}"]
    for name, peer in worker.peers.items():
        for inputs in worker.inputs(peer):
            q, k, v = (tensor.double() for tensor in inputs)
            scores = (q @ k.transpose(2, 3) * 0.125).masked_fill(worker.torch.ones(3, 9).tril(6) == 0, float("-inf"))
            with peer.context():
                error = (peer.call(*inputs) - scores.softmax(3) @ v).abs().max()
            found.append(f"{name}: {'right' if error < 4e-3 else error}")
except Exception as error:
    found = [describe(error)]
print(json.dumps({"ok": found}), file=ANSWERS)
"#;
    let mut session = Process::start(&program, &format!("{script}{decode}")).unwrap();
    let outcomes: Vec<String> = session.ask("problem", json!({})).unwrap();
    insta::assert_snapshot!(outcomes.join("\n"), @r"
    tensor([9], dtype=torch.int32)
    torch-default: right
    torch-default: right
    torch-math: right
    torch-math: right
    ");
}

/// Returns a Python that has torch, if there is one. CI has.
fn python_with_torch() -> Option<String> {
    let program = measure::python::program(None);
    let has_torch = Command::new(&program)
        .args(["-c", "import torch"])
        .output()
        .is_ok_and(|output| output.status.success());
    assert!(
        has_torch || std::env::var_os("CI").is_none(),
        "CI tests with PyTorch: scripts/python"
    );
    if !has_torch {
        eprintln!("not tested: {program} has no torch; run scripts/python");
        return None;
    }
    Some(program)
}

/// Libraries that compute on the processor get what their signatures say, in their layout, and their
/// outputs come back in that of dense tensors.
#[test]
fn sequences_as_they_are_served_are_laid_out_for_each_library() {
    let Some(program) = python_with_torch() else {
        return;
    };
    let script = SCRIPT.strip_suffix("main()\n").unwrap();
    let calls = include_str!("served_calls.py");
    let mut session = Process::start(&program, &format!("{script}{calls}")).unwrap();
    let outcomes: Vec<String> = session.ask("problem", json!({})).unwrap();
    insta::assert_snapshot!(outcomes.join("\n"), @r"
    packed, flash-attn-4: flash_attn_varlen_func: right
    packed, flash-attn-3: flash_attn_varlen_func: right
    packed, torch-varlen: varlen_attn enable_gqa: right
    packed, flashinfer: plan ragged, run: right
    packed, flashinfer-xqa: it takes one query of each sequence and no softcap
    pages, flash-attn-4: flash_attn_varlen_func: right
    pages, flash-attn-3: flash_attn_with_kvcache: right
    pages, torch-varlen: varlen_attn enable_gqa: right
    pages, flashinfer: plan paged 4, run: right
    pages, flashinfer-xqa: it takes one query of each sequence and no softcap
    pages of one query each, flash-attn-4: flash_attn_varlen_func: right
    pages of one query each, flash-attn-3: flash_attn_with_kvcache: right
    pages of one query each, torch-varlen: varlen_attn enable_gqa: right
    pages of one query each, flashinfer: plan decode 16, run: right
    pages of one query each, flashinfer-xqa: xqa 16: right
    window, flash-attn-4: flash_attn_func: right
    window, flash-attn-3: flash_attn_func: right
    window, torch-varlen: it takes packed sequences
    window, flashinfer: plan ragged, run: right
    window, flashinfer-xqa: it takes one query of each sequence and no softcap
    sinks, flash-attn-4: flash_attn_varlen_func: right
    sinks, flash-attn-3: it has no sinks
    sinks, torch-varlen: it has neither sinks nor a softcap
    sinks, flashinfer: plan sinks 1, run: right
    sinks, flashinfer-xqa: it takes one query of each sequence and no softcap
    cap, flash-attn-4: flash_attn_varlen_func: right
    cap, flash-attn-3: flash_attn_varlen_func: right
    cap, torch-varlen: it has neither sinks nor a softcap
    cap, flashinfer: plan ragged, run: right
    cap, flashinfer-xqa: it takes one query of each sequence and no softcap
    lengths of dense keys, flash-attn-4: it takes no lengths of dense keys
    lengths of dense keys, flash-attn-3: flash_attn_with_kvcache: right
    lengths of dense keys, torch-varlen: it takes packed sequences
    lengths of dense keys, flashinfer: plan decode 4, run: right
    lengths of dense keys, flashinfer-xqa: it takes one query of each sequence and no softcap
    decode, flashinfer: plan decode 32, run: right
    decode, flashinfer-xqa: xqa 32: right
    verify, flashinfer: plan decode 32, run: right
    verify, flashinfer-xqa: it takes one query of each sequence and no softcap
    a window of both sides, flashinfer: its windows have no bound on keys behind the query
    a window of both sides, flashinfer-xqa: its windows have no bound on keys behind the query
    sinks and a window, flashinfer: plan sinks 32, run: right
    sinks and a window, flashinfer-xqa: it takes one query of each sequence and no softcap
    codes of decoding, flashinfer: plan decode 16 of codes, run: right
    codes of decoding, flashinfer-xqa: xqa 16: right
    codes of chunks, flashinfer: plan paged 4 of codes, run: right
    codes of chunks, flashinfer-xqa: it takes one query of each sequence and no softcap
    sinks of decoding, flashinfer: plan sinks 16, run: right
    sinks of decoding, flashinfer-xqa: xqa 16: right
    again, flashinfer: plan decode 32, run: right; run
    again, flashinfer-xqa: xqa 32: right; xqa 32
    ");
}

/// A name that is not there would pass for a broken library.
#[test]
fn every_name_in_peers_py_is_there() {
    let look = r#"
import builtins, symtable, sys

def tables(of):
    return [of, *(table for child in of.get_children() for table in tables(child))]

module = symtable.symtable(sys.argv[1], "peers.py", "exec")
there = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()} | set(dir(builtins))
globals = {symbol.get_name() for table in tables(module) for symbol in table.get_symbols() if symbol.is_global() or table is module}
print(*(globals - there))
"#;
    let Some(_) = python("") else {
        return;
    };
    let planted = format!("{SCRIPT}\ndef f():\n    return [not_there for _ in range(here)]\n");
    for (script, missing) in [(SCRIPT, ""), (&planted, "here not_there")] {
        let output = Command::new("python3").args(["-c", look, script]).output();
        let printed = String::from_utf8(output.unwrap().stdout).unwrap();
        let mut names: Vec<&str> = printed.split_whitespace().collect();
        names.sort();
        assert_eq!(names.join(" "), missing);
    }
}

/// Returns the variants that may stand for a stage, on mission.
fn representatives(run: &Run, stage: &StageMeta, dtype: Dtype, mask: Mask) -> Representatives {
    let place = ProblemPlace::new("mission", dtype, mask);
    Representatives::new(&View::alone(run), stage, &place)
}

/// Returns those of the families of the first stage, of which the second has the default.
fn of_families(scalar: &[&str], wmma_qk: &[&str]) -> Representatives {
    let names = |variants: &[&str]| variants.iter().map(ToString::to_string).collect();
    Representatives {
        of_claims: names(wmma_qk),
        of_others: names(scalar),
    }
}

#[test]
fn the_fastest_variants_of_the_run_may_stand_for_their_stage() {
    let run = timed([15.0, 20.0, 18.0]);
    assert_eq!(
        representatives(&run, &ladder()[0], Dtype::F16, Mask::Full),
        of_families(&["scalar-32x64"], &["wmma-qk-32x64"])
    );
}

#[test]
fn another_family_that_the_run_timed_as_slower_does_not_stand_for_the_stage() {
    let run = timed([25.0, 20.0, 18.0]);
    assert_eq!(
        representatives(&run, &ladder()[0], Dtype::F16, Mask::Full),
        of_families(&[], &["wmma-qk-32x64"])
    );
}

/// Beside peers, grouped heads were timed without the family that packs them, which is the fastest.
#[test]
fn variants_of_all_families_are_tried_on_a_problem_that_was_not_timed() {
    let run = timed([15.0, 20.0, 18.0]);
    assert_eq!(
        representatives(&run, &ladder()[0], Dtype::F16, Mask::Causal),
        of_families(&["scalar-32x64"], &["wmma-qk-32x64"])
    );
}

#[test]
fn no_variant_without_the_element_type_stands_for_a_stage() {
    let run = timed([15.0, 20.0, 18.0]);
    assert!(representatives(&run, &ladder()[1], Dtype::Bf16, Mask::Causal).is_empty());
}

#[test]
fn no_variant_that_takes_dense_tensors_alone_stands_for_a_stage_on_pages() {
    let run = timed([15.0, 20.0, 18.0]);
    let pages = ProblemPlace::new("paged_decode_64", Dtype::F16, Mask::Causal);
    for stage in &ladder() {
        assert!(Representatives::new(&View::alone(&run), stage, &pages).is_empty());
    }
}

/// The default's family reads K and V in Q's type alone.
#[test]
fn claims_are_about_the_first_family_that_takes_a_problem() {
    let run = timed([15.0, 20.0, 18.0]);
    let mut stage = ladder().remove(0);
    for variant in &mut stage.variants {
        variant.serves = true;
        variant.cache = variant.is_of("scalar").then_some(Cache::E4m3);
    }
    let of_claims = |shape: &str| {
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Causal);
        Representatives::new(&View::alone(&run), &stage, &place).of_claims
    };
    assert_eq!(of_claims("fp8_cache"), ["scalar-32x64"]);
    assert_eq!(of_claims("paged_decode_64"), ["wmma-qk-32x64"]);
}

#[test]
fn no_variant_stands_for_a_stage_that_is_red() {
    let red = timed([15.0, 20.0, 18.0]).with_gate(
        testing::CPASYNC,
        testing::ON_GPU,
        GateId::C2,
        Verdict::Fail,
    );
    for mask in [Mask::Full, Mask::Causal] {
        assert!(representatives(&red, &ladder()[1], Dtype::F16, mask).is_empty());
    }
}
