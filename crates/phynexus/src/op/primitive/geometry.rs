//! The windows of convolutions and pooling.

use smallvec::SmallVec;

use super::need;
use crate::shape::Dims;

/// The geometry of a convolution or pooling window over the trailing spatial dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// The extents of the window (the filter's spatial shape).
    pub kernel: Dims,
    /// Steps between windows.
    pub stride: Dims,
    /// Steps between the elements of a window.
    pub dilation: Dims,
    /// Padding before and after each spatial dimension.
    pub padding: SmallVec<[(usize, usize); 3]>,
    /// Channel groups (1 for pooling).
    pub groups: usize,
}

impl Geometry {
    /// The extent of the output along spatial dimension `d` for an input of extent `size`: `floor((size + padding -
    /// dilation * (kernel - 1) - 1) / stride) + 1`. `None` if the window does not fit.
    pub fn output_size(&self, d: usize, size: usize) -> Option<usize> {
        let padded = size.checked_add(self.padding[d].0)?.checked_add(self.padding[d].1)?;
        let window = self.dilation[d].checked_mul(self.kernel[d].checked_sub(1)?)?.checked_add(1)?;
        Some(padded.checked_sub(window)? / self.stride[d] + 1)
    }

    /// Checks it for an input x and a result y, and returns the number of spatial dimensions.
    pub(in crate::op) fn check(&self, x: &[usize], y: &[usize]) -> Result<usize, &'static str> {
        let spatial = self.kernel.len();
        need(
            x.len() == spatial + 2 && y.len() == spatial + 2 && x[0] == y[0],
            "not (batch, channels, spatial..)",
        )?;
        need(
            self.stride.len() == spatial && self.dilation.len() == spatial && self.padding.len() == spatial,
            "a geometry of another rank",
        )?;
        need(self.groups > 0 && !self.stride.contains(&0) && !self.dilation.contains(&0), "a stride of 0")?;
        let fits = (0..spatial).all(|d| self.output_size(d, x[d + 2]) == Some(y[d + 2]));
        need(fits, "the window gives another extent")?;
        Ok(spatial)
    }

    /// The position in one spatial plane of extents `input` of element `tap` of the window at `output`; `None` in the
    /// padding.
    pub(super) fn tap_place(&self, input: &[usize], output: &[usize], tap: &[usize]) -> Option<Dims> {
        let place = |d: usize| {
            let padded = output[d] * self.stride[d] + tap[d] * self.dilation[d];
            padded.checked_sub(self.padding[d].0).filter(|p| *p < input[d])
        };
        (0..input.len()).map(place).collect()
    }
}

/// For tests: windows with and without stride, dilation, uneven padding and groups, in one to three dimensions, with
/// the shapes of an input and the spatial extents of the result.
pub(super) fn samples() -> Vec<(Geometry, Vec<usize>, Vec<usize>)> {
    type Window<'a> = (&'a [usize], &'a [usize], &'a [usize], &'a [(usize, usize)], usize);
    let calls: [(Window, &[usize], &[usize]); 10] = [
        ((&[1], &[1], &[1], &[(0, 0)], 1), &[1, 1, 1], &[1]),
        ((&[2], &[1], &[1], &[(0, 0)], 1), &[1, 2, 5], &[4]),
        ((&[3], &[1], &[1], &[(1, 1)], 1), &[2, 3, 19], &[19]),
        ((&[3], &[2], &[2], &[(0, 1)], 2), &[1, 4, 9], &[3]),
        ((&[3, 3], &[1, 1], &[1, 1], &[(1, 1), (1, 1)], 1), &[2, 3, 8, 9], &[8, 9]),
        ((&[2, 3], &[2, 1], &[1, 2], &[(1, 0), (0, 2)], 1), &[1, 2, 7, 6], &[4, 4]),
        ((&[3, 3], &[1, 1], &[1, 1], &[(1, 1), (1, 1)], 4), &[1, 4, 5, 5], &[5, 5]),
        ((&[1, 1], &[2, 2], &[1, 1], &[(0, 0), (0, 0)], 1), &[1, 5, 4, 4], &[2, 2]),
        ((&[2, 2], &[2, 2], &[1, 1], &[(0, 0), (0, 0)], 1), &[0, 3, 4, 4], &[2, 2]),
        ((&[2, 2, 2], &[1, 2, 1], &[1, 1, 1], &[(0, 0), (1, 1), (0, 1)], 1), &[1, 2, 3, 4, 3], &[2, 3, 3]),
    ];
    let sample = |((kernel, stride, dilation, padding, groups), x, out): (Window, &[usize], &[usize])| {
        let geometry = Geometry {
            kernel: kernel.into(),
            stride: stride.into(),
            dilation: dilation.into(),
            padding: padding.into(),
            groups,
        };
        (geometry, x.to_vec(), out.to_vec())
    };
    calls.map(sample).into()
}
