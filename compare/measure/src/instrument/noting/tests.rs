use super::*;
use common::timeline::What;
use common::timeline::notes;
use results::workspace;
use std::collections::{BTreeMap, BTreeSet};

/// An H200.
const HOPPER: DeviceLimits = DeviceLimits {
    capability: 90,
    shared_opt_in_bytes: 232_448,
};

fn root() -> PathBuf {
    workspace::find().expect("tests run inside the workspace")
}

/// Returns the files of a folder of headers, by their names relative to it.
fn headers(folder: &str) -> BTreeMap<String, String> {
    let root = root().join(folder);
    let mut found = BTreeMap::new();
    let mut unread = vec![root.clone()];
    while let Some(next) = unread.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                unread.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            found.insert(name.to_str().unwrap().to_string(), text);
        }
    }
    found
}

/// Returns the functions that a header defines.
fn functions(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once("static __device__ __forceinline__ ") else {
            continue;
        };
        let Some((declared, _)) = rest.split_once('(') else {
            continue;
        };
        let name = declared.rsplit(' ').next().unwrap().trim_start_matches('*');
        // Macros define one function for each element type.
        for element in ["f16", "bf16"] {
            names.insert(name.replace("##TYPE", element));
        }
    }
    names
}

#[test]
fn the_program_holds_every_header_as_it_is() {
    let embedded: BTreeMap<String, String> = HEADERS
        .iter()
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect();
    assert_eq!(headers(HEADERS_FOLDER), embedded);
}

#[test]
fn every_wrapper_takes_notes_or_says_why_not() {
    let noting = headers(HEADERS_FOLDER);
    let mut wrappers = 0;
    for (name, text) in headers("common/cuda") {
        if !name.starts_with("attn/ptx/") {
            continue;
        }
        let header = noting.get(&name);
        let with_notes = header.unwrap_or_else(|| panic!("{HEADERS_FOLDER} lacks {name}"));
        let renamed = functions(with_notes);
        let (_, excepted) = with_notes
            .split_once("Without notes: ")
            .map_or(("", ""), |(before, after)| {
                (before, after.split("#pragma").next().unwrap())
            });
        for wrapper in functions(&text) {
            wrappers += 1;
            let is_noted = renamed.contains(&wrapper)
                && with_notes.contains(&format!("#define {wrapper} plain_{wrapper}\n"));
            let is_excepted = excepted
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == wrapper);
            assert!(
                is_noted != is_excepted,
                "{name}: {wrapper} must take notes, or be named after `Without notes:`"
            );
        }
    }
    assert!(wrappers > 40, "{wrappers}");
}

#[test]
fn the_header_has_the_codes_that_are_read() {
    let (_, text) = HEADERS
        .iter()
        .find(|(name, _)| *name == "attn/timeline.cuh")
        .unwrap();
    let (_, rest) = text.split_once("enum What : uint32_t {\n").unwrap();
    let (body, _) = rest.split_once("};").unwrap();
    let names: Vec<&str> = body
        .lines()
        .map(|line| line.trim().split([' ', ',']).next().unwrap())
        .collect();
    let read: Vec<String> = What::ALL.iter().map(|what| screaming(*what)).collect();
    assert_eq!(names, read);
    for (index, what) in What::ALL.into_iter().enumerate() {
        assert_eq!(what as usize, index + 1);
    }
    for constant in [
        format!("#define ATTN_TIMELINE_NOTES {}\n", notes::NOTES),
        format!("#define ATTN_TIMELINE_WARPS {}\n", notes::WARPS),
        format!("unsigned int {};", notes::BLOCK_SYMBOL),
        format!("uint4 {}[", notes::NOTES_SYMBOL),
    ] {
        assert!(text.contains(&constant), "{constant}");
    }
}

/// Returns `TMA_LOAD` for `TmaLoad`.
fn screaming(what: What) -> String {
    let mut name = String::new();
    for c in format!("{what:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

#[test]
fn functions_that_are_noted_are_those_of_the_headers() {
    let mut defined: BTreeSet<String> = ["mma_sync", "wmma::mma_sync", "__syncthreads"]
        .map(String::from)
        .into();
    for (_, text) in headers("common/cuda") {
        defined.extend(functions(&text));
    }
    for what in What::ALL {
        for function in what.functions() {
            assert!(defined.contains(*function), "{function}");
        }
    }
}

#[test]
fn every_stage_compiles_with_notes() {
    if let Err(error) = NVCC.find() {
        assert!(std::env::var_os("CI").is_none(), "{error}");
        println!("not checked: {error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for stage in stages::load().unwrap() {
        let kernel = stage
            .kernels
            .iter()
            .find(|kernel| kernel.variant == stage.info().default_variant)
            .unwrap();
        let code = NotingCode::new(&stage, &kernel.symbol, HOPPER);
        let bytes = code.load(folder.path()).unwrap();
        for symbol in [&*kernel.symbol, notes::NOTES_SYMBOL, notes::BLOCK_SYMBOL] {
            let holds = bytes
                .windows(symbol.len())
                .any(|part| part == symbol.as_bytes());
            assert!(holds, "{}: {symbol}", stage.info().id);
        }
        assert!(code.path(folder.path()).is_file());
    }
}

#[test]
fn without_a_compiler_the_code_that_is_there_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let stages = stages::load().unwrap();
    let code = NotingCode::new(&stages[7], "stage7_wgmma_x_f16_d64", HOPPER);
    fs::write(code.path(folder.path()), "code").unwrap();
    assert_eq!(code.load(folder.path()).unwrap(), b"code");
}
