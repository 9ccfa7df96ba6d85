//! Labels of points, each placed where it covers neither a point nor another label.

use super::canvas::{Anchor, Area, Drawn, Look};
use plotters::prelude::*;

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
}

impl Frame {
    /// Returns the square around a point.
    pub fn around(point: (i32, i32), radius: i32) -> Self {
        Self {
            left: point.0 - radius,
            top: point.1 - radius,
            right: point.0 + radius,
            bottom: point.1 + radius,
        }
    }

    /// Returns the place of a text whose anchor is at a point.
    pub fn of_text(look: Look, text: &str, at: (i32, i32)) -> Self {
        let width = look.width(text);
        let left = match look.anchor {
            Anchor::Start => at.0,
            Anchor::Middle => at.0 - width / 2,
            Anchor::End => at.0 - width,
        };
        let half_height = (0.6 * look.size).ceil() as i32;
        Self {
            left,
            top: at.1 - half_height,
            right: left + width,
            bottom: at.1 + half_height,
        }
    }

    pub fn overlaps(self, other: Self) -> bool {
        let is_beside = self.right <= other.left || other.right <= self.left;
        let is_above = self.bottom <= other.top || other.bottom <= self.top;
        !is_beside && !is_above
    }

    pub fn is_within(self, other: Self) -> bool {
        let is_between = self.left >= other.left && self.right <= other.right;
        is_between && self.top >= other.top && self.bottom <= other.bottom
    }
}

/// The labels of a chart.
pub struct Labels {
    within: Frame,
    taken: Vec<Frame>,
}

/// The distance from a point within which its label needs no line to it.
const NEAR: i32 = 12;

/// The largest distance from a point at which its label is looked for.
const FAR: i32 = 120;

impl Labels {
    /// Makes the labels of a chart, which lie within a frame.
    pub fn within(within: Frame) -> Self {
        Self {
            within,
            taken: Vec::new(),
        }
    }

    /// Keeps labels off a place.
    pub fn avoid(&mut self, frame: Frame) {
        self.taken.push(frame);
    }

    /// Writes a label as near to a point as there is room, with a line to the point if that is
    /// not beside it. A label that finds no room is left out.
    pub fn put(&mut self, area: &Area<'_>, look: Look, text: &str, point: (i32, i32)) -> Drawn {
        for distance in (7..FAR).step_by(3) {
            for candidate in candidates(look, point, distance) {
                let frame = Frame::of_text(candidate.look, text, candidate.at);
                if !frame.is_within(self.within)
                    || self.taken.iter().any(|other| frame.overlaps(*other))
                {
                    continue;
                }
                self.taken.push(frame);
                if distance > NEAR {
                    area.draw(&PathElement::new(
                        vec![point, candidate.at],
                        look.paint.color().mix(0.6),
                    ))?;
                }
                return candidate.look.write(area, text, candidate.at);
            }
        }
        Ok(())
    }
}

/// A place that a label may take.
struct Candidate {
    look: Look,
    at: (i32, i32),
}

/// Returns the places around a point: right of it first, then left, above and below.
fn candidates(look: Look, point: (i32, i32), distance: i32) -> [Candidate; 8] {
    let slant = distance * 7 / 10;
    [
        (Anchor::Start, distance, 0),
        (Anchor::End, -distance, 0),
        (Anchor::Start, slant, -slant),
        (Anchor::Start, slant, slant),
        (Anchor::End, -slant, -slant),
        (Anchor::End, -slant, slant),
        (Anchor::Middle, 0, -distance),
        (Anchor::Middle, 0, distance),
    ]
    .map(|(anchor, right, down)| Candidate {
        look: look.at(anchor),
        at: (point.0 + right, point.1 + down),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::canvas::picture;
    use crate::pictures::tests::texts;

    #[test]
    fn labels_of_one_point_lie_apart_and_none_is_lost() {
        let svg = picture("Labels", 200, |area| {
            let mut labels = Labels::within(Frame {
                left: 0,
                top: 0,
                right: 520,
                bottom: 200,
            });
            labels.avoid(Frame::around((100, 100), 4));
            for number in 0..12 {
                labels.put(area, Look::NOTE, &format!("label {number}"), (100, 100))?;
            }
            Ok(())
        })
        .unwrap();
        let frames: Vec<Frame> = texts(&svg).into_iter().map(|text| text.frame).collect();
        assert_eq!(frames.len(), 12);
        for (place, frame) in frames.iter().enumerate() {
            assert!(!frame.overlaps(Frame::around((100, 100), 4)));
            assert!(frames[..place].iter().all(|other| !frame.overlaps(*other)));
        }
    }
}
