//! `report.html` as a browser shows it, at 1280 and at 400 pixels. Where there is no Chromium, the test says so and looks
//! at nothing, and with CI set it fails; what needs no browser is tested in `compare/src/document/html.rs`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Measures the page and tells the page around it.
const PROBE: &str = r#"<script>addEventListener("load", () => {
  const all = [...document.querySelectorAll("body *")].filter(e => e.getClientRects().length);
  parent.postMessage([document.documentElement.scrollWidth, innerWidth, document.body.innerText.length,
    Math.min(...all.map(e => parseFloat(getComputedStyle(e).fontSize)))].join(" "), "*");
});</script>"#;

/// The page in the folder of a quick run's record.
fn report() -> String {
    let folder = TempDir::new().unwrap();
    let arguments = "--backend emulated --quick --stages stage0-scalar --out";
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command
        .args(arguments.split(' '))
        .arg(folder.path().join("records"))
        .env_remove("ATTENTION_DEVICE");
    assert!(command.status().unwrap().success());
    let mut records = std::fs::read_dir(folder.path().join("records")).unwrap();
    let record = records.next().unwrap().unwrap().path();
    std::fs::read_to_string(record.join("report.html")).unwrap()
}

/// Runs Chromium on a file; `None`, and a line that says so, where there is none.
fn chromium(folder: &Path, page: &Path) -> Option<Output> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ["chromium", "chromium-browser", "google-chrome"].map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
    });
    let Some(program) = places.into_iter().flatten().next() else {
        assert!(std::env::var_os("CI").is_none(), "no Chromium on PATH");
        println!("not checked: no Chromium on PATH");
        return None;
    };
    let output = Command::new(program)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            "--window-size=1300,2400",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(page)
        .output()
        .expect("Chromium runs");
    Some(output)
}

/// A page that shows `report` in a frame `width` wide: a window cannot be as narrow as a phone.
fn framed(folder: &Path, report: &str, width: u32) -> PathBuf {
    std::fs::write(folder.join("report.html"), report).unwrap();
    let outer = format!(
        "<!DOCTYPE html><body style=\"margin:0\"><iframe src=\"report.html\" style=\"border:0\" width=\"{width}\" height=\"2400\">\
         </iframe><script>addEventListener(\"message\", e => {{ document.title = \"probe \" + e.data; }});</script>"
    );
    let path = folder.join("outer.html");
    std::fs::write(&path, outer).unwrap();
    path
}

/// Width of the content, of the window, letters, the smallest font in pixels.
fn probe(report: &str, width: u32) -> Option<[f64; 4]> {
    let folder = TempDir::new().unwrap();
    // The page forbids scripts, the probe among them.
    let (before, policy) = report
        .split_once("<meta http-equiv=\"Content-Security-Policy\"")
        .expect("there is a policy");
    let (_, after) = policy.split_once("/>").expect("it ends");
    let page = framed(folder.path(), &format!("{before}{PROBE}{after}"), width);
    let output = chromium(folder.path(), &page)?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, found) = dom
        .split_once("<title>probe ")
        .unwrap_or_else(|| panic!("no probe in {dom}"));
    let numbers: Vec<f64> = found
        .split("</title>")
        .next()?
        .split(' ')
        .map(|n| n.parse().unwrap())
        .collect();
    Some(numbers.try_into().expect("four numbers"))
}

#[test]
fn the_page_is_legible_and_does_not_overflow() {
    let report = report();
    for width in [1280, 400] {
        let Some([content, window, letters, font]) = probe(&report, width) else {
            return;
        };
        assert_eq!(window, f64::from(width));
        assert!(
            content <= window,
            "{width}: the content is {content} pixels wide; what is wide must scroll in its own box"
        );
        assert!(letters > 1_000.0, "{width}: {letters} letters");
        assert!(font >= 10.0, "{width}: a font of {font} pixels");
    }
    // The probe sees what is too wide.
    let wide = "<p style=\"width:90rem\">wide</p></main>";
    let [content, window, ..] = probe(&report.replace("</main>", wide), 400).unwrap();
    assert!(content > window, "{content}");
}
