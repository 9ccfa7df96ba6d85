use super::*;

fn sample() -> Vec<Block> {
    let figure = |text: &str| Cell::Figure(text.into());
    let figures = Table::from_rows([
        row! {
            "stage" => Text::default().strong("swizzle"),
            "verdict" => "GREEN",
            "cases" => figure("34,077"),
            "p50" => figure("5.274 µs").noted("k4"),
            "was" => figure("5.300 µs"),
            "over | torch" => figure("1.747x [1.736, 1.755]"),
            "vs previous" => figure("1.54x"),
        },
        row! {
            "stage" => "scalar",
            "verdict" => "FAIL C2",
            "cases" => figure("7"),
            "p50" => Cell::Missing,
            "was" => figure("NaN µs"),
            "over | torch" => Cell::Missing,
            "vs previous" => Cell::Missing,
        },
    ]);
    vec![
        Block::title("The ladder"),
        Block::strong("AMBIGUOUS: 1 claim < 1"),
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
    ]
}

#[test]
fn markdown_of_each_block_and_cell() {
    insta::assert_snapshot!(markdown::markdown(&sample()), @r##"
# The ladder

**AMBIGUOUS: 1 claim < 1**

- Fix a_b
- look\_

## Times & ratios

See `a|b` in [docs/rows.md](docs/rows.md).

| stage | verdict | cases | p50 | was | over \| torch | vs previous |
|---|---|---:|---|---:|---:|---:|
| **swizzle** | GREEN | 34,077 | 5.274 µs (k4) | 5.300 µs | 1.747x [1.736, 1.755] | 1.54x |
| scalar | FAIL C2 | 7 | – | NaN µs | – | – |

## Details

### Here \<more>
"##);
}

#[test]
fn terminal_of_each_block_and_cell() {
    insta::assert_snapshot!(terminal::terminal(&sample()), @r##"
The ladder

AMBIGUOUS: 1 claim < 1

- Fix a_b
- look_

== Times & ratios ==

See a|b in docs/rows.md.

| stage   | verdict |  cases | p50           |      was |          over | torch | vs previous |
|---------|---------|--------|---------------|----------|-----------------------|-------------|
| swizzle | GREEN   | 34,077 | 5.274 µs (k4) | 5.300 µs | 1.747x [1.736, 1.755] |       1.54x |
| scalar  | FAIL C2 |      7 | –             |   NaN µs |                     – |           – |

== Details ==

-- Here <more> --
"##);
}
