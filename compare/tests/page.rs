//! `report.html` as a browser shows it, at 1280 and at 400 pixels. Where there is no Chromium, the tests say so and look
//! at nothing, and with CI set they fail; what needs no browser is tested in `compare/src/document/tests.rs`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A blank picture of this size takes less than a tenth of this; one full of tables takes several times as much.
const LEAST_PICTURE_BYTES: u64 = 20_000;

/// A picture that slipped in, or rows that belong to `compare show`, would take more.
const MOST_PAGE_BYTES: usize = 60_000;

/// Measures the page and tells the page around it.
const PROBE: &str = r#"<script>addEventListener("load", () => {
  const all = [...document.querySelectorAll("body *")].filter(e => e.getClientRects().length);
  const styles = all.map(e => getComputedStyle(e));
  const clipped = [...document.querySelectorAll("svg")].filter(svg => {
    const view = svg.viewBox.baseVal, box = svg.getBBox();
    return box.x < 0 || box.y < 0 || box.x + box.width > view.width || box.y + box.height > view.height;
  });
  parent.postMessage([document.documentElement.scrollWidth, innerWidth, document.body.innerText.length,
    new Set(styles.map(s => s.color).concat(styles.map(s => s.fill))).size,
    Math.min(...styles.map(s => parseFloat(s.fontSize))), clipped.length].join(" "), "*");
});</script>"#;

/// The page in the folder of a quick run's record.
fn report() -> String {
    static PAGE: OnceLock<String> = OnceLock::new();
    let make = || {
        let folder = TempDir::new().unwrap();
        let arguments = [
            "--backend",
            "emulated",
            "--quick",
            "--stages",
            "stage0-scalar",
            "--quiet",
            "--out",
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command
            .args(arguments)
            .arg(folder.path().join("records"))
            .arg("--report")
            .arg(folder.path().join("REPORT.md"));
        assert!(
            command
                .env_remove("ATTENTION_DEVICE")
                .status()
                .unwrap()
                .success()
        );
        let record = std::fs::read_dir(folder.path().join("records"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        std::fs::read_to_string(record.path().join("report.html")).unwrap()
    };
    PAGE.get_or_init(make).clone()
}

/// Runs Chromium on a file; `None`, and a line that says so, where there is none.
fn chromium(folder: &Path, page: &Path, arguments: &[String]) -> Option<Output> {
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
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(arguments)
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

/// Width of the content, of the window, letters, colours, the smallest font in pixels, clipped charts.
fn probe(report: &str, width: u32) -> Option<[f64; 6]> {
    let folder = TempDir::new().unwrap();
    // The page forbids scripts, the probe among them.
    let (before, policy) = report
        .split_once("<meta http-equiv=\"Content-Security-Policy\"")
        .expect("there is a policy");
    let (_, after) = policy.split_once("/>").expect("it ends");
    let page = framed(folder.path(), &format!("{before}{PROBE}{after}"), width);
    let output = chromium(
        folder.path(),
        &page,
        &["--window-size=1300,2400".into(), "--dump-dom".into()],
    )?;
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
    Some(numbers.try_into().expect("six numbers"))
}

#[test]
fn the_page_is_legible_and_does_not_overflow() {
    for width in [1280, 400] {
        let Some([content, window, letters, colours, font, clipped]) = probe(&report(), width)
        else {
            return;
        };
        assert_eq!(window, f64::from(width));
        assert!(
            content <= window,
            "{width}: the content is {content} pixels wide; what is wide must scroll in its own box"
        );
        assert!(letters > 1_000.0, "{width}: {letters} letters");
        assert!(colours >= 3.0, "{width}: {colours} colours");
        assert!(font >= 10.0, "{width}: a font of {font} pixels");
        assert_eq!(
            clipped, 0.0,
            "{width}: charts with something outside their picture"
        );
    }
}

#[test]
fn the_probe_sees_what_is_too_wide_and_what_is_clipped() {
    let wide = "<p style=\"width:90rem\">wide</p><svg viewBox=\"0 0 9 9\"><text x=\"5\" y=\"5\">clipped</text></svg></main>";
    let Some([content, window, .., clipped]) = probe(&report().replace("</main>", wide), 400)
    else {
        return;
    };
    assert!(content > window, "{content}");
    assert_eq!(clipped, 1.0);
}

#[test]
fn pictures_of_the_page_are_not_blank() {
    for (width, scheme) in [(1280, "light"), (400, "light"), (1280, "dark")] {
        let folder = TempDir::new().unwrap();
        let page = framed(folder.path(), &report(), width);
        let picture = folder.path().join("page.png");
        let dark = if scheme == "dark" {
            "--blink-settings=preferredColorScheme=0"
        } else {
            "--blink-settings=preferredColorScheme=1"
        };
        let arguments = [
            format!("--window-size={},2400", width.max(500)),
            format!("--screenshot={}", picture.display()),
            dark.into(),
        ];
        if chromium(folder.path(), &page, &arguments).is_none() {
            return;
        }
        let bytes = std::fs::metadata(&picture).expect("a screenshot").len();
        assert!(
            bytes > LEAST_PICTURE_BYTES,
            "{width} {scheme}: {bytes} bytes"
        );
    }
}

#[test]
fn the_page_is_small() {
    assert!(report().len() < MOST_PAGE_BYTES, "{} bytes", report().len());
}
