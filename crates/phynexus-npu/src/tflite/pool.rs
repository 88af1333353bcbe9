//! Pools, means and resizing.

use neurenix_onnx::edit::integers_of;

use super::{
    layout::Layout,
    schema::{Activation, Code, Padding, pool, reducer, resize},
    writer::{Held, Writer},
};
use crate::Result;

impl Writer<'_> {
    /// `MaxPool` and `AveragePool`.
    pub(crate) fn pool(&mut self, is_max: bool) -> Result<()> {
        let x = self.input(0)?;
        if self.node().output.len() > 1 {
            return Err(self.refuse("indices have no form in TFLite"));
        }
        let goal = self.goal(false)?;
        let held = self.held(x)?;
        // The largest of integers is exact; a mean is rounded only where the network rounds it, too.
        let quantized =
            if is_max { self.is_quantized(&held) } else { self.quantized_kind(&[x], &goal)?.is_some() };
        let image = self.image(x, quantized)?;
        let output = self.image_shape(&goal.name)?;
        let size = [output[1], output[2]];
        let kernel = integers_of(self.node(), "kernel_shape").unwrap_or_default();
        let kernel: Vec<usize> = kernel.iter().map(|&extent| extent.max(1) as usize).collect();
        let window = self.window(&kernel, image.size(), size)?;
        if window.dilation != [1, 1] {
            return Err(self.refuse("dilated pools have no form in TFLite"));
        }
        let counts_pads = self.integer("count_include_pad", 0) != 0;
        let named = window.padding(image.size(), size);
        let (image, padding) = match named {
            Some(padding) if is_max || padding == Padding::Valid || !counts_pads => (image, padding),
            _ if !is_max && (!counts_pads || self.integer("ceil_mode", 0) != 0) => {
                return Err(self.refuse("means with such pads have no form in TFLite"));
            }
            _ => (self.with_pads(image, &window, size, is_max)?, Padding::Valid),
        };
        let like = Held { tensor: image.tensor, layout: Layout::ChannelsLast };
        let result = self.result_like(&like, &Layout::ChannelsLast)?;
        let made = self.image_of(result)?;
        let options = pool(padding, window.stride, window.size, Activation::None);
        let code = if is_max { Code::MAX_POOL_2D } else { Code::AVERAGE_POOL_2D };
        self.step(code, vec![image.tensor], made.image, options);
        self.finish_image(made);
        Ok(())
    }

    /// `GlobalAveragePool` and `ReduceMean`.
    pub(crate) fn mean(&mut self) -> Result<()> {
        let x = self.input(0)?;
        let rank = self.shape(x)?.len();
        let is_global = self.node().op_type == "GlobalAveragePool";
        let keeps = is_global || self.integer("keepdims", 1) != 0;
        let given = match integers_of(self.node(), "axes") {
            Some(axes) => Some(axes.to_vec()),
            None => self.constant_input(1)?,
        };
        let axes: Vec<i64> = match given.filter(|axes| !axes.is_empty()) {
            _ if is_global => (2..rank as i64).collect(),
            Some(axes) => axes,
            None if self.integer("noop_with_empty_axes", 0) != 0 => {
                return Err(self.refuse("a mean over no axis has no form in TFLite"));
            }
            None => (0..rank as i64).collect(),
        };
        let axes: Vec<usize> = axes.into_iter().map(|axis| self.axis(axis, rank)).collect::<Result<_>>()?;
        let goal = self.goal(false)?;
        let quantized = self.quantized_kind(&[x], &goal)?.is_some();
        let is_over_image = rank > 2 && (2..rank).all(|axis| axes.contains(&axis));
        let held = self.held(x)?;
        let layout = match held.layout {
            Layout::ChannelsLast if keeps || is_over_image => Layout::ChannelsLast,
            _ => Layout::Network,
        };
        let held = self.operand(x, &layout, quantized)?;
        let axes: Vec<i32> = axes.into_iter().map(|axis| layout.axis(axis, rank) as i32).collect();
        let axes = self.integers(&axes);
        let made = if keeps { layout } else { Layout::Network };
        let result = self.result(&goal, &made, quantized)?;
        self.step(Code::MEAN, vec![held.tensor, axes], result, reducer(keeps));
        Ok(())
    }

    /// `Resize` of images.
    pub(crate) fn resize(&mut self) -> Result<()> {
        let x = self.input(0)?;
        let goal = self.goal(false)?;
        let output = self.image_shape(&goal.name)?;
        let input = self.image_shape(x)?;
        let is_four = self.shape(x)?.len() == 4;
        if !is_four || input[0] != output[0] || input[3] != output[3] {
            return Err(self.refuse("TFLite resizes the height and width of images"));
        }
        let mode = self.text("mode", "nearest");
        let coordinates = self.text("coordinate_transformation_mode", "half_pixel");
        let rounding = self.text("nearest_mode", "round_prefer_floor");
        let is_linear = mode == "linear";
        // With a whole factor, no sample lies between two pixels, so how ties are rounded does not matter.
        let is_whole = [1, 2].into_iter().all(|axis| output[axis] % input[axis].max(1) == 0);
        let is_known = match (mode.as_str(), coordinates.as_str()) {
            ("linear", "half_pixel" | "align_corners" | "asymmetric") => true,
            ("nearest", "asymmetric") => rounding == "floor",
            ("nearest", "half_pixel") => is_whole && rounding.starts_with("round"),
            _ => false,
        };
        let has_options = self.integer("antialias", 0) != 0 || self.integer("exclude_outside", 0) != 0;
        if !is_known || has_options {
            return Err(
                self.refuse(format!("mode {mode} with {coordinates} and {rounding} differs in TFLite"))
            );
        }
        let held = self.held(x)?;
        let quantized = match is_linear {
            true => self.quantized_kind(&[x], &goal)?.is_some(),
            false => self.is_quantized(&held),
        };
        let held = self.operand(x, &Layout::ChannelsLast, quantized)?;
        let size = self.integers(&output[1..3]);
        let result = self.result_like(&held, &Layout::ChannelsLast)?;
        let code = if is_linear { Code::RESIZE_BILINEAR } else { Code::RESIZE_NEAREST_NEIGHBOR };
        let options = resize(is_linear, coordinates == "align_corners", coordinates == "half_pixel");
        self.step(code, vec![held.tensor, size], result, options);
        Ok(())
    }
}
