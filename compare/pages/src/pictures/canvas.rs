//! The parts that all pictures share: colours in light and dark, measured text, and the SVG around
//! what plotters draws.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;

/// The width of a picture in its own pixels. Letters of [`BODY`] have 9 of a screen's pixels where
/// a picture is shown 400 wide.
pub const WIDTH: u32 = 520;

/// The width at which a page shows a picture, if it has the room.
const SHOWN_WIDTH: u32 = 760;

/// The sizes of letters, in a picture's pixels.
pub const TITLE: f64 = 13.0;
pub const BODY: f64 = 12.0;
pub const SMALL: f64 = 10.0;

/// The height of a title with one line of a note below it.
pub const HEADING: i32 = 40;

/// The factor that plotters divides the size of letters by when it writes an SVG.
const SCALE: f64 = 1.24;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type DrawError = DrawingAreaErrorKind<io::Error>;
pub type Drawn = Result<(), DrawError>;

/// A colour by its meaning. A page in dark has another one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Text, and what is singled out.
    Ink,
    /// Notes and axes.
    Faint,
    Blue,
    Red,
    Green,
    Amber,
    Violet,
    Cyan,
}

/// The colours of a paint.
struct Colours {
    light: RGBColor,
    dark: &'static str,
}

impl Paint {
    pub const ALL: [Self; 8] = [
        Self::Ink,
        Self::Faint,
        Self::Blue,
        Self::Red,
        Self::Green,
        Self::Amber,
        Self::Violet,
        Self::Cyan,
    ];

    /// Returns the colours of GitHub's own pages, which have enough contrast on both grounds.
    const fn colours(self) -> Colours {
        let (light, dark) = match self {
            Self::Ink => (RGBColor(31, 35, 40), "#e6edf3"),
            Self::Faint => (RGBColor(89, 99, 110), "#9198a1"),
            Self::Blue => (RGBColor(9, 105, 218), "#4493f8"),
            Self::Red => (RGBColor(207, 34, 46), "#f85149"),
            Self::Green => (RGBColor(26, 127, 55), "#3fb950"),
            Self::Amber => (RGBColor(154, 103, 0), "#d29922"),
            Self::Violet => (RGBColor(130, 80, 223), "#ab7df8"),
            Self::Cyan => (RGBColor(27, 124, 131), "#39c5cf"),
        };
        Colours { light, dark }
    }

    /// Returns it as plotters draws it.
    pub const fn color(self) -> RGBColor {
        self.colours().light
    }

    /// Returns the rules that put the dark colour in the place of the light one, as plotters writes
    /// that.
    fn dark_rules(self) -> String {
        let Colours { light, dark } = self.colours();
        let RGBColor(red, green, blue) = light;
        let name = format!("#{red:02X}{green:02X}{blue:02X}");
        format!("[fill=\"{name}\"]{{fill:{dark}}}[stroke=\"{name}\"]{{stroke:{dark}}}")
    }
}

/// Returns an SVG of that height with what `draw` draws, in the colours that a reader's page has.
pub fn picture(
    title: &str,
    height: i32,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, DrawError> {
    let mut drawn = String::new();
    {
        let size = (WIDTH, height.unsigned_abs());
        let area = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    // The first line is plotters' own element, of a fixed size.
    let (_, body) = drawn.split_once('\n').unwrap_or_default();
    let rules: String = Paint::ALL.map(Paint::dark_rules).concat();
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{SHOWN_WIDTH}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n<title>{title}</title>\n\
         <style>@media(prefers-color-scheme:dark){{{rules}}}</style>\n{body}"
    ))
}

/// The point of a text that lies at its place; in height its middle always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// The look of a text.
#[derive(Clone, Copy)]
pub struct Look {
    pub size: f64,
    pub paint: Paint,
    pub anchor: Anchor,
    pub is_bold: bool,
}

impl Look {
    /// The look of a value.
    pub const BODY: Self = Self {
        size: BODY,
        paint: Paint::Ink,
        anchor: Anchor::Start,
        is_bold: false,
    };
    pub const NAME: Self = Self {
        is_bold: true,
        ..Self::BODY
    };
    pub const TITLE: Self = Self {
        size: TITLE,
        is_bold: true,
        ..Self::BODY
    };
    /// The look of a note or of an axis.
    pub const NOTE: Self = Self {
        size: SMALL,
        paint: Paint::Faint,
        ..Self::BODY
    };

    pub const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub const fn painted(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }

    pub const fn sized(self, size: f64) -> Self {
        Self { size, ..self }
    }

    /// Returns it as plotters takes it.
    pub fn style(self) -> TextStyle<'static> {
        let weight = if self.is_bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let horizontal = match self.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let font = FontDesc::new(FontFamily::SansSerif, self.size * SCALE, weight);
        let colour = self.paint.color();
        let mut style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center));
        style.color = colour.to_backend_color();
        style
    }

    /// Writes a text whose anchor is at a point.
    pub fn write(self, area: &Area<'_>, text: &str, at: (i32, i32)) -> Drawn {
        if text.is_empty() {
            return Ok(());
        }
        area.draw_text(text, &self.style(), at)
    }

    /// Returns the width of a text in pixels, rounded up.
    pub fn width(self, text: &str) -> i32 {
        (measure::ems(text, self.is_bold) * self.size).ceil() as i32
    }

    /// Returns the width of the widest of these texts.
    pub fn widest<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> i32 {
        let widths = texts.into_iter().map(|text| self.width(text));
        widths.max().unwrap_or_default()
    }

    /// Breaks a text into lines that are no wider than `width`, unless a word is.
    pub fn lines(self, text: &str, width: i32) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = String::new();
        for word in text.split_whitespace() {
            let longer = format!("{line} {word}");
            if line.is_empty() {
                line = word.to_string();
            } else if self.width(&longer) <= width {
                line = longer;
            } else {
                lines.push(std::mem::replace(&mut line, word.to_string()));
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        lines
    }
}

/// Writes a title, and a note below it in as many lines as it takes. Returns the height of both.
pub fn heading(area: &Area<'_>, title: &str, note: &str) -> Result<i32, DrawError> {
    Look::TITLE.write(area, title, (0, 9))?;
    let lines = Look::NOTE.lines(note, width_of(area));
    for (index, line) in lines.iter().enumerate() {
        Look::NOTE.write(area, line, (0, 27 + 14 * index as i32))?;
    }
    Ok(heading_height(note, width_of(area)))
}

/// Returns the height of a heading with that note.
pub fn heading_height(note: &str, width: i32) -> i32 {
    let lines = Look::NOTE.lines(note, width);
    HEADING - 14 + 14 * lines.len() as i32
}

/// Returns the width of an area in pixels.
pub fn width_of(area: &Area<'_>) -> i32 {
    area.dim_in_pixel().0 as i32
}

pub mod measure {
    //! The widths of texts in DejaVu Sans, the widest of the fonts that browsers take for
    //! `sans-serif`: Liberation Sans, Arial and Helvetica are narrower in every letter.

    /// The advances of the printable characters of ASCII from the space on, in 1/1000 em.
    const REGULAR: [u16; 95] = [
        318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636,
        636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698,
        770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732,
        684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635,
        634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,
        525, 636, 337, 636, 838,
    ];
    const BOLD: [u16; 95] = [
        348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696,
        696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734,
        830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850, 733, 850, 770, 720, 682, 812,
        774, 1103, 771, 724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716, 678, 435, 716,
        712, 343, 343, 665, 343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652,
        582, 712, 365, 712, 838,
    ];
    /// The advance of every other character: no sign that pictures have is wider.
    const OTHER: u16 = 1000;

    /// Returns the width of a text in em.
    pub fn ems(text: &str, is_bold: bool) -> f64 {
        let advances = if is_bold { &BOLD } else { &REGULAR };
        let mut width = 0.0;
        for character in text.chars() {
            let place = (character as usize).wrapping_sub(' ' as usize);
            width += f64::from(advances.get(place).copied().unwrap_or(OTHER));
        }
        width / 1000.0
    }
}
