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

/// A label, and the point that it is of.
#[derive(Clone)]
pub struct Label {
    pub look: Look,
    pub text: String,
    pub point: (i32, i32),
}

/// The side of its point that a label is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// The labels of a chart.
pub struct Labels {
    within: Frame,
    taken: Vec<Frame>,
}

/// The distance from a point to its label, and the one within which a label needs no line.
const GAP: i32 = 7;
const NEAR: i32 = 12;

/// The largest distance from a point at which its label is looked for.
const FAR: i32 = 120;

/// The width of a column of points.
const COLUMN: i32 = 12;

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

    /// Writes labels beside their points. Those of points above each other, whose labels would
    /// meet, stand in a column in the order of the points.
    pub fn put_all(&mut self, area: &Area<'_>, side: Side, mut labels: Vec<Label>) -> Drawn {
        labels.sort_by_key(|label| label.point);
        let columns = labels.chunk_by_mut(|a, b| b.point.0 - a.point.0 < COLUMN);
        for column in columns {
            column.sort_by_key(|label| label.point.1);
            for group in stacked(column) {
                self.put_stack(area, side, &group)?;
            }
        }
        Ok(())
    }

    /// Writes the labels of a group as near to their points as there is room for all.
    fn put_stack(&mut self, area: &Area<'_>, side: Side, stack: &[Placed]) -> Drawn {
        if let [only] = stack {
            return self.put(area, side, &only.label);
        }
        let points = stack.iter().map(|placed| placed.label.point.0);
        let edge = match side {
            Side::Left => points.min(),
            Side::Right => points.max(),
        };
        for shift in places_of_stacks() {
            let x = match side {
                Side::Left => edge.unwrap_or_default() - shift.across,
                Side::Right => edge.unwrap_or_default() + shift.across,
            };
            let frames = stack.iter().map(|placed| placed.frame(side, x, shift.down));
            if frames.clone().all(|frame| self.is_free(frame)) {
                for placed in stack {
                    let look = side.look(placed.label.look);
                    self.write(area, &placed.label, look, (x, placed.y + shift.down))?;
                }
                return Ok(());
            }
        }
        for placed in stack {
            self.put(area, side, &placed.label)?;
        }
        Ok(())
    }

    /// Writes a label as near to its point as there is room, first on one side. A label that finds
    /// no room is left out.
    pub fn put(&mut self, area: &Area<'_>, side: Side, label: &Label) -> Drawn {
        for distance in (GAP..FAR).step_by(3) {
            for Candidate { look, at } in candidates(side, label, distance) {
                let frame = Frame::of_text(look, &label.text, at);
                if self.is_free(frame) {
                    return self.write(area, label, look, at);
                }
            }
        }
        Ok(())
    }

    fn is_free(&self, frame: Frame) -> bool {
        frame.is_within(self.within) && !self.taken.iter().any(|other| frame.overlaps(*other))
    }

    /// Writes a label at a place, with a line to its point if that is not beside it.
    fn write(&mut self, area: &Area<'_>, label: &Label, look: Look, at: (i32, i32)) -> Drawn {
        self.taken.push(Frame::of_text(look, &label.text, at));
        let apart = (at.0 - label.point.0)
            .abs()
            .max((at.1 - label.point.1).abs());
        if apart > NEAR || (at.1 - label.point.1).abs() > 4 {
            let line = vec![label.point, at];
            area.draw(&PathElement::new(line, look.paint.color().mix(0.6)))?;
        }
        look.write(area, &label.text, at)
    }
}

impl Side {
    fn look(self, look: Look) -> Look {
        look.at(match self {
            Side::Left => Anchor::End,
            Side::Right => Anchor::Start,
        })
    }
}

/// A label of a column at its height.
struct Placed {
    label: Label,
    y: i32,
}

impl Placed {
    fn frame(&self, side: Side, x: i32, down: i32) -> Frame {
        let look = side.look(self.label.look);
        Frame::of_text(look, &self.label.text, (x, self.y + down))
    }
}

/// A distance from the place beside the points.
struct Shift {
    across: i32,
    down: i32,
}

/// Returns the places that a stack of labels may take, the nearest first.
fn places_of_stacks() -> Vec<Shift> {
    let mut places = Vec::new();
    for across in (GAP + 3..FAR / 3).step_by(6) {
        for distance in (0..FAR / 2).step_by(4) {
            for down in [-distance, distance] {
                places.push(Shift { across, down });
            }
        }
    }
    places.sort_by_key(|shift| shift.across + shift.down.abs());
    places
}

/// Returns a column's labels, sorted from the top, in groups in which they follow each other line by
/// line; a group is as high as its points on average.
fn stacked(column: &[Label]) -> Vec<Vec<Placed>> {
    let mut groups: Vec<Vec<Label>> = Vec::new();
    for label in column {
        let mut group = vec![label.clone()];
        while let Some(above) = groups.pop() {
            if bottom(&above) <= top(&group) {
                groups.push(above);
                break;
            }
            group = [above, group].concat();
        }
        groups.push(group);
    }
    let mut stacks = Vec::new();
    for group in groups {
        let mut y = top(&group);
        let mut stack = Vec::new();
        for label in group {
            let height = line_height(&label);
            stack.push(Placed {
                label,
                y: y + height / 2,
            });
            y += height;
        }
        stacks.push(stack);
    }
    stacks
}

fn line_height(label: &Label) -> i32 {
    (1.3 * label.look.size).ceil() as i32
}

/// Returns the upper end of a group that is centred on its points.
fn top(group: &[Label]) -> i32 {
    let points: i32 = group.iter().map(|label| label.point.1).sum();
    let height: i32 = group.iter().map(line_height).sum();
    points / group.len() as i32 - height / 2
}

fn bottom(group: &[Label]) -> i32 {
    top(group) + group.iter().map(line_height).sum::<i32>()
}

/// A place that a label may take.
struct Candidate {
    look: Look,
    at: (i32, i32),
}

/// Returns the places around a point: on one side first, then on the other, above and below.
fn candidates(side: Side, label: &Label, distance: i32) -> [Candidate; 8] {
    let slant = distance * 7 / 10;
    let (own, other, direction) = match side {
        Side::Right => (Anchor::Start, Anchor::End, 1),
        Side::Left => (Anchor::End, Anchor::Start, -1),
    };
    [
        (own, distance, 0),
        (own, slant, -slant),
        (own, slant, slant),
        (other, -distance, 0),
        (other, -slant, -slant),
        (other, -slant, slant),
        (Anchor::Middle, 0, -distance),
        (Anchor::Middle, 0, distance),
    ]
    .map(|(anchor, across, down)| Candidate {
        look: label.look.at(anchor),
        at: (label.point.0 + direction * across, label.point.1 + down),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::canvas::picture;
    use crate::pictures::tests::texts;

    const WHOLE: Frame = Frame {
        left: 0,
        top: 0,
        right: 520,
        bottom: 200,
    };

    fn label(text: &str, point: (i32, i32)) -> Label {
        Label {
            look: Look::NOTE,
            text: text.into(),
            point,
        }
    }

    #[test]
    fn labels_of_one_point_lie_apart_and_none_is_lost() {
        let svg = picture("Labels", 200, |area| {
            let mut labels = Labels::within(WHOLE);
            labels.avoid(Frame::around((100, 100), 4));
            for number in 0..12 {
                let own = label(&format!("label {number}"), (100, 100));
                labels.put(area, Side::Right, &own)?;
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

    #[test]
    fn labels_of_a_column_are_in_the_order_of_its_points() {
        for side in [Side::Left, Side::Right] {
            let svg = picture("Labels", 200, |area| {
                let all = vec![
                    label("c", (200, 104)),
                    label("a", (206, 96)),
                    label("b", (203, 98)),
                    label("d", (201, 150)),
                ];
                Labels::within(WHOLE).put_all(area, side, all)
            })
            .unwrap();
            let mut found = texts(&svg);
            found.sort_by_key(|text| text.frame.top);
            let words: Vec<&str> = found.iter().map(|text| &*text.words).collect();
            assert_eq!(words, ["a", "b", "c", "d"]);
            for two in found.windows(2) {
                assert!(!two[0].frame.overlaps(two[1].frame));
            }
            let is_right = found[0].frame.left > 206;
            assert_eq!(is_right, side == Side::Right);
        }
    }
}
