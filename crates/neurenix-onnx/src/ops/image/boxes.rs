//! Choosing among boxes that overlap.

use phynexus::{DType, Tensor, interrupt};

use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

/// A box between two corners.
#[derive(Clone, Copy)]
struct Rectangle {
    low: [f32; 2],
    high: [f32; 2],
}

impl Rectangle {
    /// The box of four numbers: two corners, or the centre and the extents.
    fn new(numbers: &[f32], centred: bool) -> Rectangle {
        let [a, b, c, d] = *numbers else { return Rectangle { low: [0.0; 2], high: [0.0; 2] } };
        match centred {
            true => Rectangle { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] },
            false => Rectangle { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] },
        }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Whether the area that both share is more than this part of the area of both.
    fn overlaps(&self, other: &Rectangle, threshold: f32) -> bool {
        let side = |axis: usize| self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis]);
        let (width, height) = (side(0), side(1));
        if !(width > 0.0 && height > 0.0) {
            return false;
        }
        let shared = width * height;
        let both = self.area() + other.area() - shared;
        shared > 0.0 && both > 0.0 && shared / both > threshold
    }
}

pub(super) fn non_max_suppression(call: &Call<'_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (call.tensor(0)?, call.tensor(1)?);
    let (&[batch, count, 4], &[batches, classes, scored]) = (boxes.shape(), scores.shape()) else {
        return Err(Error::invalid(
            "boxes must have the shape (batch, count, 4), scores (batch, classes, count)",
        ));
    };
    if batch != batches || count != scored {
        return Err(Error::invalid(format!(
            "boxes of the shape {:?} do not fit scores of {:?}",
            boxes.shape(),
            scores.shape()
        )));
    }
    let number = |input: usize| if call.has(input) { call.number(input).map(Some) } else { Ok(None) };
    let limit = number(2)?.unwrap_or(0.0).max(0.0) as usize;
    let threshold = number(3)?.unwrap_or(0.0) as f32;
    let least = number(4)?.map(|score| score as f32);
    let centred = call.int_or("center_point_box", 0)? != 0;
    let mut chosen: Vec<i64> = Vec::new();
    if limit > 0 && count > 0 {
        let boxes = boxes.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let rectangles: Vec<Rectangle> =
            boxes.chunks(4).map(|numbers| Rectangle::new(numbers, centred)).collect();
        let scores = scores.to_dtype(DType::F32)?.to_vec::<f32>()?;
        for (at, scores) in scores.chunks(count).enumerate() {
            let (image, class) = (at / classes, at % classes);
            let rectangles = &rectangles[image * count..(image + 1) * count];
            let mut order: Vec<usize> =
                (0..count).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut kept: Vec<usize> = Vec::new();
            for candidate in order {
                if kept.len() == limit {
                    break;
                }
                interrupt::check()?;
                if !kept.iter().any(|&other| rectangles[candidate].overlaps(&rectangles[other], threshold)) {
                    kept.push(candidate);
                    chosen.extend([image as i64, class as i64, candidate as i64]);
                }
            }
        }
    }
    one(Tensor::from_slice(&chosen, &[chosen.len() / 3, 3], call.device)?)
}
