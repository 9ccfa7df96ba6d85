use super::*;

fn sample() -> Document {
    let us = |value: f64| Cell::figure(value, format!("{value:.3} µs"));
    let figures = Table::of([
        row! {
            "stage" => Text::default().strong("swizzle"),
            "verdict" => "GREEN",
            "cases" => Cell::figure(34_077.0, "34,077"),
            "p50" => us(5.274).noted("k4"),
            "was" => us(5.3),
            "over | torch" => Cell::Figure {
                value: 1.747,
                interval: Some((1.736, 1.755)),
                text: "1.747x [1.736, 1.755]".into(),
            },
            "vs previous" => Cell::figure(1.54, "1.54x (−35 %)"),
        },
        row! {
            "stage" => "scalar",
            "verdict" => "FAIL C2",
            "cases" => Cell::figure(7.0, "7"),
            "p50" => Cell::Missing("not timed".into()),
            "was" => us(f64::NAN),
            "over | torch" => Cell::Missing("no <peer>".into()),
            "vs previous" => Cell::Missing("the first".into()),
        },
    ]);
    Document {
        marker: Some("compare"),
        title: "The ladder".into(),
        verdict: Some(Verdict {
            word: "AMBIGUOUS".into(),
            why: "1 claim < 1".into(),
        }),
        blocks: vec![
            Block::bullets(["Fix a_b", "look_"]),
            Block::section("Times & ratios"),
            Block::paragraph(
                Text::from("See `a|b` in ")
                    .link("docs/rows.md", "docs/rows.md")
                    .plain("."),
            ),
            Block::Table(figures),
            Block::section("Details"),
            Block::Heading {
                level: 3,
                text: "Here <more>".into(),
            },
        ],
    }
}

#[test]
fn markdown_of_each_block_and_cell() {
    insta::assert_snapshot!(markdown::markdown(&sample()), @r##"
<!-- compare -->

# The ladder

**AMBIGUOUS: 1 claim < 1**

- Fix a_b
- look\_

## Times & ratios

See `a|b` in [docs/rows.md](docs/rows.md).

| stage | verdict | cases | p50 | was | over \| torch | vs previous |
|---|---|---:|---|---:|---:|---:|
| **swizzle** | GREEN | 34,077 | 5.274 µs (k4) | 5.300 µs | 1.747x [1.736, 1.755] | 1.54x (−35 %) |
| scalar | FAIL C2 | 7 | – | NaN µs | – | – |

## Details

### Here \<more>
"##);
}

#[test]
fn terminal_of_each_block_and_cell() {
    insta::assert_snapshot!(terminal::terminal(&sample(), terminal::WIDTH), @r##"
The ladder

AMBIGUOUS: 1 claim < 1

- Fix a_b
- look_

== Times & ratios ==

See a|b in docs/rows.md.

| stage   | verdict |  cases | p50           |      was |          over | torch |   vs previous |
|---------|---------|--------|---------------|----------|-----------------------|---------------|
| swizzle | GREEN   | 34,077 | 5.274 µs (k4) | 5.300 µs | 1.747x [1.736, 1.755] | 1.54x (−35 %) |
| scalar  | FAIL C2 |      7 | –             |   NaN µs |                     – |             – |

== Details ==

-- Here <more> --
"##);
}

#[test]
fn json_of_each_block_and_cell() {
    let text = serde_json::to_string(&sample())
        .unwrap()
        .replace("},{", "},\n{")
        .replace("],[", "],\n[");
    insta::assert_snapshot!(text, @r##"
{"title":"The ladder","verdict":{"word":"AMBIGUOUS","why":"1 claim < 1"},"blocks":[{"bullets":["Fix a_b","look_"]},
{"heading":{"level":2,"text":"Times & ratios"}},
{"paragraph":"See a|b in docs/rows.md."},
{"table":{"columns":["stage","verdict","cases","p50","was","over | torch","vs previous"],"rows":[[{"text":"swizzle"},
{"text":"GREEN"},
{"figure":{"value":34077.0,"text":"34,077"}},
{"noted":{"cell":{"figure":{"value":5.274,"text":"5.274 µs"}},"note":"k4"}},
{"figure":{"value":5.3,"text":"5.300 µs"}},
{"figure":{"value":1.747,"interval":[1.736,1.755],"text":"1.747x [1.736, 1.755]"}},
{"figure":{"value":1.54,"text":"1.54x (−35 %)"}}],
[{"text":"scalar"},
{"text":"FAIL C2"},
{"figure":{"value":7.0,"text":"7"}},
{"missing":"not timed"},
{"figure":{"value":null,"text":"NaN µs"}},
{"missing":"no <peer>"},
{"missing":"the first"}]]}},
{"heading":{"level":2,"text":"Details"}},
{"heading":{"level":3,"text":"Here <more>"}}]}
"##);
}
