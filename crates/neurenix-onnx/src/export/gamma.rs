//! `lgamma` and `digamma`, which ONNX lacks: [`phynexus::op::gamma`] has the formulas. All cases are computed, and one is
//! selected.

use std::f64::consts::PI;

use phynexus::{
    DType,
    op::gamma::{
        DIGAMMA_FAR, HALF_LOG_TAU, STIRLING,
        coefficients::{
            DIGAMMA_MIDDLE_32, DIGAMMA_MIDDLE_64, DIGAMMA_NEAR_32, DIGAMMA_NEAR_64, DIGAMMA_ROOT,
            LGAMMA_MIDDLE_32, LGAMMA_MIDDLE_64, LGAMMA_NEAR_32, LGAMMA_NEAR_64,
        },
    },
};

use super::writer::{Value, Writer};

/// Records operations of one number and another.
struct Formula<'a> {
    writer: &'a mut Writer,
    dtype: DType,
}

impl Formula<'_> {
    fn by(&mut self, op: &'static str, a: &Value, number: f64) -> Value {
        let number = self.writer.scalar(self.dtype, number);
        self.writer.each(op, &[a, &number])
    }

    fn from(&mut self, op: &'static str, number: f64, a: &Value) -> Value {
        let number = self.writer.scalar(self.dtype, number);
        self.writer.each(op, &[&number, a])
    }

    fn each(&mut self, op: &'static str, operands: &[&Value]) -> Value {
        self.writer.each(op, operands)
    }

    /// Terms from the lowest power up.
    fn polynomial(&mut self, x: &Value, terms: &[f64]) -> Value {
        let mut terms = terms.iter().rev();
        let first = terms.next().copied().unwrap_or_default();
        let mut sum = self.writer.scalar(self.dtype, first);
        for &term in terms {
            let product = self.each("Mul", &[&sum, x]);
            sum = self.by("Add", &product, term);
        }
        sum
    }

    /// The value where x is at least 1, and where the function is computed elsewhere: `near`, `middle` and `far` are its
    /// three formulas, of y less 2, of y from 3 to 8 within -1 to 1, and of y from 8 on. With the conditions x < 1 and
    /// x < 0, and the distance of x from the nearest whole number.
    fn place(
        &mut self,
        x: &Value,
        near: impl FnOnce(&mut Self, &Value) -> Value,
        middle: impl FnOnce(&mut Self, &Value, &Value) -> Value,
        far: impl FnOnce(&mut Self, &Value) -> Value,
    ) -> [Value; 4] {
        let (small, below) = (self.by("Less", x, 1.0), self.by("Less", x, 0.0));
        let [y, t] = [(1.0, 1.0, 0.0), (-1.0, -1.0, -2.0)].map(|(reflected, shifted, given)| {
            let given = self.by("Add", x, given);
            let shifted = self.by("Add", x, shifted);
            let reflected = self.from("Sub", reflected, x);
            let positive = self.each("Where", &[&small, &shifted, &given]);
            self.each("Where", &[&below, &reflected, &positive])
        });
        let (least, greatest) = (self.by("Max", &t, -1.0), 1.0);
        let t = self.by("Min", &least, greatest);
        let low = near(self, &t);
        let (least, greatest) = (self.by("Max", &y, 3.0), 8.0);
        let between = self.by("Min", &least, greatest);
        let centred = self.by("Sub", &between, 5.5);
        let m = self.by("Div", &centred, 2.5);
        let mid = middle(self, &between, &m);
        let beyond = self.by("Max", &y, 8.0);
        let high = far(self, &beyond);
        let (is_high, is_low) = (self.by("Less", &y, 8.0), self.by("Less", &y, 3.0));
        let upper = self.each("Where", &[&is_high, &mid, &high]);
        let value = self.each("Where", &[&is_low, &low, &upper]);
        let nearest = self.each("Round", &[x]);
        let fraction = self.each("Sub", &[x, &nearest]);
        [value, small, below, fraction]
    }
}

pub(super) fn lgamma(writer: &mut Writer, x: &Value) -> Value {
    let wide = x.dtype == DType::F64;
    let (low, mid) = match wide {
        true => (LGAMMA_NEAR_64.as_slice(), LGAMMA_MIDDLE_64.as_slice()),
        false => (LGAMMA_NEAR_32.as_slice(), LGAMMA_MIDDLE_32.as_slice()),
    };
    let mut f = Formula { writer, dtype: x.dtype };
    let [value, small, below, fraction] = f.place(
        x,
        |f, t| {
            let polynomial = f.polynomial(t, low);
            let shifted = f.by("Add", t, 1.0);
            let factor = f.each("Mul", &[&shifted, t]);
            f.each("Mul", &[&factor, &polynomial])
        },
        |f, y, m| {
            let polynomial = f.polynomial(m, mid);
            let factor = f.by("Sub", y, 2.0);
            f.each("Mul", &[&factor, &polynomial])
        },
        |f, y| {
            let inverse = f.from("Div", 1.0, y);
            let square = f.each("Mul", &[&inverse, &inverse]);
            let series = f.polynomial(&square, &STIRLING[..if wide { 10 } else { 5 }]);
            let series = f.each("Mul", &[&series, &inverse]);
            let rest = f.by("Add", &series, HALF_LOG_TAU - 0.5);
            let log = f.each("Log", &[y]);
            let (log, factor) = (f.by("Sub", &log, 1.0), f.by("Sub", y, 0.5));
            let product = f.each("Mul", &[&factor, &log]);
            f.each("Add", &[&product, &rest])
        },
    );
    let log = f.each("Log", &[x]);
    let shifted = f.each("Sub", &[&value, &log]);
    let angle = f.by("Mul", &fraction, PI);
    let sine = f.each("Sin", &[&angle]);
    let sine = f.each("Abs", &[&sine]);
    let sine = f.by("Div", &sine, PI);
    let log = f.each("Log", &[&sine]);
    let sum = f.each("Add", &[&log, &value]);
    let difference = f.each("Neg", &[&sum]);
    let (infinity, distance) = (f.writer.scalar(x.dtype, f64::INFINITY), f.each("Abs", &[&fraction]));
    let is_between = f.from("Less", 0.0, &distance);
    let reflected = f.each("Where", &[&is_between, &difference, &infinity]);
    let positive = f.each("Where", &[&small, &shifted, &value]);
    f.each("Where", &[&below, &reflected, &positive])
}

pub(super) fn digamma(writer: &mut Writer, x: &Value) -> Value {
    let wide = x.dtype == DType::F64;
    let (low, mid) = match wide {
        true => (DIGAMMA_NEAR_64.as_slice(), DIGAMMA_MIDDLE_64.as_slice()),
        false => (DIGAMMA_NEAR_32.as_slice(), DIGAMMA_MIDDLE_32.as_slice()),
    };
    let mut f = Formula { writer, dtype: x.dtype };
    let [value, small, below, fraction] = f.place(
        x,
        |f, t| {
            let polynomial = f.polynomial(t, low);
            let [root, rest @ ..] = DIGAMMA_ROOT;
            let factor = f.by("Sub", t, root - 2.0);
            let factor = rest.iter().fold(factor, |factor, &part| f.by("Sub", &factor, part));
            f.each("Mul", &[&factor, &polynomial])
        },
        |f, _, m| f.polynomial(m, mid),
        |f, y| {
            let inverse = f.from("Div", 1.0, y);
            let square = f.each("Mul", &[&inverse, &inverse]);
            let series = f.polynomial(&square, &DIGAMMA_FAR[..if wide { 10 } else { 5 }]);
            let series = f.each("Mul", &[&series, &square]);
            let half = f.by("Mul", &inverse, 0.5);
            let (log, rest) = (f.each("Log", &[y]), f.each("Add", &[&half, &series]));
            f.each("Sub", &[&log, &rest])
        },
    );
    let inverse = f.from("Div", 1.0, x);
    let shifted = f.each("Sub", &[&value, &inverse]);
    // The cotangent of a multiple of pi. Near its zeros the angle is measured from them, without rounding.
    let distance = f.each("Abs", &[&fraction]);
    let near = f.by("Less", &distance, 0.25);
    let other = f.from("Sub", 0.5, &distance);
    let angle = f.each("Where", &[&near, &distance, &other]);
    let angle = f.by("Mul", &angle, PI);
    let tangent = f.each("Tan", &[&angle]);
    let inverse = f.from("Div", 1.0, &tangent);
    let cotangent = f.each("Where", &[&near, &inverse, &tangent]);
    let (negative, opposite) = (f.by("Less", &fraction, 0.0), f.each("Neg", &[&cotangent]));
    let cotangent = f.each("Where", &[&negative, &opposite, &cotangent]);
    let cotangent = f.by("Mul", &cotangent, PI);
    let difference = f.each("Sub", &[&value, &cotangent]);
    let nan = f.writer.scalar(x.dtype, f64::NAN);
    let is_between = f.from("Less", 0.0, &distance);
    let reflected = f.each("Where", &[&is_between, &difference, &nan]);
    let positive = f.each("Where", &[&small, &shifted, &value]);
    f.each("Where", &[&below, &reflected, &positive])
}
