//! Windows over images: sizes, strides and pads.

use neurenix_onnx::edit::{integer_of, integers_of};

use super::{
    graph::Stored,
    layout::Layout,
    schema::{Code, Kind, Padding, plain, reshape},
    writer::{Goal, Held, Writer},
};
use crate::Result;

/// A window that moves over images, rows before columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) size: [i32; 2],
    pub(crate) stride: [i32; 2],
    pub(crate) dilation: [i32; 2],
    /// Pads before the first row and column.
    pub(crate) begin: [i32; 2],
}

impl Window {
    /// The extent that the window covers. Extents have 64 bits here: a product of two numbers of a file does not fit 32.
    fn reach(&self, axis: usize) -> i64 {
        (i64::from(self.size[axis]) - 1) * i64::from(self.dilation[axis]) + 1
    }

    /// The extent that windows of this output cover together.
    pub(crate) fn covered(&self, axis: usize, output: i32) -> i64 {
        (i64::from(output) - 1) * i64::from(self.stride[axis]) + self.reach(axis)
    }

    /// The pads that windows of this output need in all.
    fn total(&self, axis: usize, input: i32, output: i32) -> i64 {
        (self.covered(axis, output) - i64::from(input)).max(0)
    }

    /// TFLite's name of these pads, if it has one.
    pub(crate) fn padding(&self, input: [i32; 2], output: [i32; 2]) -> Option<Padding> {
        let all = |holds: &dyn Fn(usize) -> bool| holds(0) && holds(1);
        let is_valid = |axis: usize| {
            let left = i64::from(input[axis]) - self.reach(axis);
            self.begin[axis] == 0 && left.div_euclid(self.stride[axis].into()) + 1 == output[axis].into()
        };
        let is_same = |axis: usize| {
            let stride = i64::from(self.stride[axis]);
            let rounded = (i64::from(input[axis]) + stride - 1) / stride;
            let total = self.total(axis, input[axis], output[axis]);
            i64::from(output[axis]) == rounded && i64::from(self.begin[axis]) == total / 2
        };
        match (all(&is_valid), all(&is_same)) {
            (true, _) => Some(Padding::Valid),
            (_, true) => Some(Padding::Same),
            _ => None,
        }
    }

    /// The pads after the last row or column that the output needs.
    pub(crate) fn end(&self, axis: usize, input: i32, output: i32) -> i64 {
        (self.covered(axis, output) - i64::from(input) - i64::from(self.begin[axis])).max(0)
    }
}

/// An image in the file: `[n, h, w, c]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    pub(crate) tensor: i32,
    pub(crate) shape: [i32; 4],
}

impl Image {
    pub(crate) fn size(&self) -> [i32; 2] {
        [self.shape[1], self.shape[2]]
    }
}

impl Writer<'_> {
    /// The window of the node over an image of this size, with an output of this size.
    pub(crate) fn window(&self, size: &[usize], input: [i32; 2], output: [i32; 2]) -> Result<Window> {
        let node = self.node();
        // One dimension is an image of one row.
        let pair = |given: Option<&[i64]>, default: i32| -> Result<[i32; 2]> {
            match given {
                None | Some([]) => Ok([default; 2]),
                Some(&[width]) => Ok([if default == 0 { 0 } else { 1 }, self.short(width)?]),
                Some(&[height, width]) => Ok([self.short(height)?, self.short(width)?]),
                Some(_) => Err(self.refuse("only one and two dimensions have a form in TFLite")),
            }
        };
        let size: Vec<i64> = size.iter().map(|&extent| extent as i64).collect();
        let mut window = Window {
            size: pair(Some(&size), 1)?,
            stride: pair(integers_of(node, "strides"), 1)?,
            dilation: pair(integers_of(node, "dilations"), 1)?,
            begin: [0; 2],
        };
        if window.stride.iter().chain(&window.dilation).any(|&step| step < 1) {
            return Err(self.refuse("strides and dilations must be positive"));
        }
        let automatic = self.text("auto_pad", "NOTSET");
        let pads = integers_of(node, "pads").unwrap_or_default();
        let totals = [0, 1].map(|axis| window.total(axis, input[axis], output[axis]));
        window.begin = match automatic.as_str() {
            "SAME_UPPER" => pair(Some(&totals.map(|total| total / 2)), 0)?,
            "SAME_LOWER" => pair(Some(&totals.map(|total| total - total / 2)), 0)?,
            "VALID" => [0; 2],
            _ => pair(Some(&pads[..pads.len() / 2]), 0)?,
        };
        Ok(window)
    }

    /// A value as an image: channels last, of one row if it has one dimension.
    pub(crate) fn image(&mut self, value: &str, quantized: bool) -> Result<Image> {
        let held = self.operand(value, &Layout::ChannelsLast, quantized)?;
        let shape = match self.stored(&held).shape[..] {
            [n, w, c] => [n, 1, w, c],
            [n, h, w, c] => [n, h, w, c],
            _ => return Err(self.refuse("only one and two dimensions have a form in TFLite")),
        };
        let tensor = self.reshaped(held.tensor, shape.to_vec());
        Ok(Image { tensor, shape })
    }

    /// The extents of a value of the network as an image.
    pub(crate) fn image_shape(&self, value: &str) -> Result<[i32; 4]> {
        match Layout::ChannelsLast.shape(self.shape(value)?)[..] {
            [n, w, c] => Ok([n, 1, w, c]),
            [n, h, w, c] => Ok([n, h, w, c]),
            _ => Err(self.refuse("only one and two dimensions have a form in TFLite")),
        }
    }

    /// The image with its pads written out, as far as an operator cannot do them itself, and what the operator does.
    /// `lowest` pads with the least number instead of zero.
    pub(crate) fn padded(
        &mut self,
        image: Image,
        window: &Window,
        output: [i32; 2],
        lowest: bool,
    ) -> Result<(Image, Padding)> {
        match window.padding(image.size(), output) {
            Some(padding) => Ok((image, padding)),
            None => Ok((self.with_pads(image, window, output, lowest)?, Padding::Valid)),
        }
    }

    /// The image with its pads written out.
    pub(crate) fn with_pads(
        &mut self,
        image: Image,
        window: &Window,
        output: [i32; 2],
        lowest: bool,
    ) -> Result<Image> {
        let [n, h, w, c] = image.shape;
        let ends = [0, 1].map(|axis| window.end(axis, image.size()[axis], output[axis]));
        let end = [self.short(ends[0])?, self.short(ends[1])?];
        let [top, left] = window.begin;
        if top < 0 || left < 0 {
            return Err(self.refuse("pads must not be negative"));
        }
        let sum = |parts: [i32; 3]| self.short(parts.into_iter().map(i64::from).sum());
        let shape = [n, sum([h, top, end[0]])?, sum([w, left, end[1]])?, c];
        self.check_size("the padded image", &shape.map(|extent| extent as usize))?;
        let whole = Window { begin: [0; 2], ..window.clone() };
        if whole.padding([shape[1], shape[2]], output) != Some(Padding::Valid) {
            return Err(self.refuse("these pads have no form in TFLite"));
        }
        let like = self.graph.tensors[image.tensor as usize].clone();
        let name = format!("{}/padded{}", like.name, self.graph.tensors.len());
        let made = self.push(Stored { name, shape: shape.to_vec(), ..like.clone() });
        let pads = self.integers(&[0, 0, top, end[0], left, end[1], 0, 0]);
        self.graph.tensors[pads as usize].shape = vec![4, 2];
        match lowest {
            false => self.step(Code::PAD, vec![image.tensor, pads], made, plain(Code::PAD)),
            true => {
                let data = match like.kind {
                    Kind::F32 => f32::MIN.to_le_bytes().to_vec(),
                    kind => kind.bytes([kind.range().0 as i64]),
                };
                let name = format!("{}/lowest{made}", like.name);
                let least = self.push(Stored { name, shape: vec![1], data: Some(data), ..like });
                self.step(Code::PADV2, vec![image.tensor, pads, least], made, plain(Code::PADV2));
            }
        }
        Ok(Image { tensor: made, shape })
    }

    /// The tensor that an operator on images writes to for this result: the result's own, or an image of one row.
    pub(crate) fn image_result(&mut self, goal: &Goal, quantized: bool) -> Result<ImageResult> {
        let tensor = self.result(goal, &Layout::ChannelsLast, quantized)?;
        self.image_of(tensor)
    }

    /// The tensor that an operator on images writes to for this tensor.
    pub(crate) fn image_of(&mut self, tensor: i32) -> Result<ImageResult> {
        let like = self.graph.tensors[tensor as usize].clone();
        let &[n, w, c] = &like.shape[..] else { return Ok(ImageResult { image: tensor, result: tensor }) };
        let name = format!("{}/image", like.name);
        let image = self.push(Stored { name, shape: vec![n, 1, w, c], ..like });
        Ok(ImageResult { image, result: tensor })
    }

    /// Writes what follows the operator on images.
    pub(crate) fn finish_image(&mut self, made: ImageResult) {
        let ImageResult { image, result } = made;
        if image != result {
            let shape = self.graph.tensors[result as usize].shape.clone();
            let extents = self.integers(&shape);
            self.step(Code::RESHAPE, vec![image, extents], result, reshape(shape));
        }
    }

    /// A number as a file has it.
    pub(crate) fn short(&self, number: i64) -> Result<i32> {
        i32::try_from(number).map_err(|_| self.refuse(format!("{number} does not fit the 32 bits of a file")))
    }

    /// A text attribute of the node, or its default.
    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        let found = self.node().attribute.iter().find(|attribute| attribute.name == name);
        found.map_or(default.to_owned(), |attribute| String::from_utf8_lossy(&attribute.s).into_owned())
    }

    /// A float attribute of the node, or its default.
    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        self.node().attribute.iter().find(|known| known.name == name).map_or(default, |known| known.f())
    }

    /// A tensor of the network that holds a value, with its layout.
    pub(crate) fn is_quantized(&self, held: &Held) -> bool {
        self.stored(held).quantization.is_some()
    }

    /// An axis of the node, which counts from the end if it is negative.
    pub(crate) fn axis(&self, given: i64, rank: usize) -> Result<usize> {
        let axis = if given < 0 { given + rank as i64 } else { given };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < rank);
        axis.ok_or_else(|| self.refuse(format!("axis {given} of a value of {rank} dimensions")))
    }

    /// An integer attribute of the node.
    pub(crate) fn integer(&self, name: &str, default: i64) -> i64 {
        integer_of(self.node(), name, default)
    }
}

/// Where an operator on images writes, and the tensor of its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageResult {
    pub(crate) image: i32,
    pub(crate) result: i32,
}
