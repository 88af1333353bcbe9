//! The line search.

use super::{
    Objective, Solution,
    vector::{along, dot},
};
use crate::Result;

/// The sufficient share of the decrease that the derivative predicts.
const SUFFICIENT: f64 = 1e-4;
/// The maximum number of steps outwards, and of steps inwards.
const OUTWARDS: usize = 25;
const INWARDS: usize = 40;

/// A point on the line.
#[derive(Clone)]
pub(super) struct Point {
    /// The distance along the direction.
    pub(super) step: f64,
    /// The function at this point.
    pub(super) value: f64,
    /// Its gradient at this point.
    pub(super) gradient: Vec<f64>,
    /// Its derivative along the direction.
    derivative: f64,
}

/// A line through a point.
pub(super) struct Line<'a> {
    pub(super) from: &'a Solution,
    pub(super) gradient: &'a [f64],
    /// A direction of descent.
    pub(super) direction: &'a [f64],
    /// The maximum ratio of the final derivative to the initial one.
    pub(super) flatness: f64,
}

impl Line<'_> {
    fn at(&self, objective: &mut dyn Objective, step: f64) -> Result<Point> {
        let (value, gradient) =
            objective.value_and_gradient(&along(&self.from.weights, step, self.direction))?;
        let derivative = dot(&gradient, self.direction);
        let value = if value.is_finite() && derivative.is_finite() { value } else { f64::INFINITY };
        Ok(Point { step, value, gradient, derivative })
    }

    /// A point that satisfies the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 2006, algorithms
    /// 3.5 and 3.6), or at least is lower than the start; `None` if rounding hides every decrease.
    pub(super) fn search(&self, objective: &mut dyn Objective, first: f64) -> Result<Option<Point>> {
        let start = Point {
            step: 0.0,
            value: self.from.value,
            gradient: self.gradient.to_vec(),
            derivative: dot(self.gradient, self.direction),
        };
        let mut previous = start.clone();
        let mut step = first;
        for round in 0..OUTWARDS {
            let point = self.at(objective, step)?;
            if self.too_high(&start, &point) || (round > 0 && point.value >= previous.value) {
                return self.between(objective, &start, previous, point);
            }
            if point.derivative.abs() <= -self.flatness * start.derivative {
                return Ok(Some(point));
            }
            if point.derivative >= 0.0 {
                return self.between(objective, &start, point, previous);
            }
            previous = point;
            step *= 2.0;
        }
        Ok((previous.step > 0.0).then_some(previous))
    }

    fn too_high(&self, start: &Point, point: &Point) -> bool {
        point.value > start.value + SUFFICIENT * point.step * start.derivative
    }

    /// Searches between two points. `low` is the lower one, and the function decreases from it towards `high`.
    fn between(
        &self,
        objective: &mut dyn Objective,
        start: &Point,
        mut low: Point,
        mut high: Point,
    ) -> Result<Option<Point>> {
        for _ in 0..INWARDS {
            let step = within(&low, &high);
            if step == low.step || step == high.step {
                break;
            }
            let point = self.at(objective, step)?;
            if self.too_high(start, &point) || point.value >= low.value {
                high = point;
                continue;
            }
            if point.derivative.abs() <= -self.flatness * start.derivative {
                return Ok(Some(point));
            }
            if point.derivative * (high.step - low.step) >= 0.0 {
                high = low;
            }
            low = point;
        }
        Ok((low.step > 0.0 && low.value < start.value).then_some(low))
    }
}

/// The minimum of the cubic through two points and the derivatives there, kept away from both; their middle if there is
/// none.
fn within(low: &Point, high: &Point) -> f64 {
    let width = high.step - low.step;
    let middle = low.step + 0.5 * width;
    if !high.value.is_finite() {
        return low.step + 0.1 * width;
    }
    let first = low.derivative + high.derivative - 3.0 * (low.value - high.value) / (low.step - high.step);
    let square = first * first - low.derivative * high.derivative;
    if !(square >= 0.0 && square.is_finite()) {
        return middle;
    }
    let second = square.sqrt().copysign(width);
    let divisor = high.derivative - low.derivative + 2.0 * second;
    let step = high.step - width * (high.derivative + second - first) / divisor;
    let (near, far) = (low.step + 0.1 * width, low.step + 0.9 * width);
    if step.is_finite() { step.clamp(near.min(far), near.max(far)) } else { middle }
}
