//! Convolutions and transposed convolutions.

use phynexus::{DType, Device, Tensor, tensor::Generator};

use super::{Module, Parameter, Visitor, init};
use crate::{Error, Result};

/// Options of a convolution: the arguments of PyTorch's layers after the kernel size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions<const D: usize> {
    /// The stride.
    pub stride: [usize; D],
    /// Zero padding on both sides.
    pub padding: [usize; D],
    /// The spacing between kernel elements.
    pub dilation: [usize; D],
    /// The size added at one end of a transposed convolution's output.
    pub output_padding: [usize; D],
    /// The number of channel groups.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl<const D: usize> Default for ConvOptions<D> {
    fn default() -> ConvOptions<D> {
        ConvOptions {
            stride: [1; D],
            padding: [0; D],
            dilation: [1; D],
            output_padding: [0; D],
            groups: 1,
            bias: true,
        }
    }
}

fn check(name: &str, inputs: usize, outputs: usize, groups: usize, kernel: &[usize]) -> Result<()> {
    if inputs == 0 || outputs == 0 || groups == 0 || kernel.contains(&0) {
        return Err(Error::data(name, "channels, groups and kernel sizes must be at least 1"));
    }
    if !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        let message =
            format!("{inputs} input and {outputs} output channels must be divisible by {groups} groups");
        return Err(Error::data(name, message));
    }
    Ok(())
}

/// Weight and bias, uniform within ±1/√fan_in as in PyTorch.
fn draw(
    shape: &[usize],
    biases: Option<usize>,
    device: Device,
    generator: &Generator,
) -> Result<(Parameter, Option<Parameter>)> {
    let bound = 1.0 / (init::fans(shape).0 as f64).sqrt();
    let uniform = |shape: &[usize]| {
        Parameter::new(&init::uniform(shape, -bound, bound, DType::F32, device, generator)?)
    };
    let weight = uniform(shape)?;
    Ok((weight, biases.map(|n| uniform(&[n])).transpose()?))
}

/// The text of [`Module::describe`].
fn describe<const D: usize>(
    name: &str,
    transposed: bool,
    weight: &Parameter,
    options: &ConvOptions<D>,
) -> String {
    let shape = weight.tensor().shape().to_vec();
    let ConvOptions { stride, padding, dilation, output_padding, groups, bias } = options;
    let (inputs, outputs) =
        if transposed { (shape[0], shape[1] * groups) } else { (shape[1] * groups, shape[0]) };
    let added = if transposed { format!(", output_padding={output_padding:?}") } else { String::new() };
    format!(
        "{name}({inputs}, {outputs}, kernel_size={:?}, stride={stride:?}, padding={padding:?}{added}, \
         dilation={dilation:?}, groups={groups}, bias={bias})",
        &shape[2..]
    )
}

macro_rules! convolution {
    ($($dims:literal $layer:ident $what:literal, transposed: $transposed:literal, weight: $weight:literal,
       $function:ident($($argument:ident)+);)+) => { $(
        #[doc = concat!($what, " over ", stringify!($dims), " spatial dimensions.")]
        #[derive(Debug)]
        pub struct $layer {
            weight: Parameter,
            bias: Option<Parameter>,
            options: ConvOptions<$dims>,
        }

        impl $layer {
            #[doc = concat!(
                "Creates a layer from `[N, in_channels, ..]` to `[N, out_channels, ..]`. The weight has shape `", $weight, "`."
            )]
            /// # Errors
            /// If the groups do not divide the channels, or a size is 0.
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: [usize; $dims],
                options: ConvOptions<$dims>,
                device: Device,
                generator: &Generator,
            ) -> Result<$layer> {
                check(stringify!($layer), in_channels, out_channels, options.groups, &kernel_size)?;
                let (rows, columns) =
                    if $transposed { (in_channels, out_channels) } else { (out_channels, in_channels) };
                let mut shape = vec![rows, columns / options.groups];
                shape.extend(kernel_size);
                let (weight, bias) = draw(&shape, options.bias.then_some(out_channels), device, generator)?;
                Ok($layer { weight, bias, options })
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let ConvOptions { $($argument,)+ .. } = self.options;
                let bias = self.bias.as_ref().map(Parameter::leaf).transpose()?;
                Ok(input.$function(&self.weight.leaf()?, bias.as_ref(), $($argument),+)?)
            }
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.weight("weight", &self.weight);
                visitor.optional("bias", &self.bias);
            }
            fn describe(&self) -> String {
                describe(stringify!($layer), $transposed, &self.weight, &self.options)
            }
        }
    )+ };
}

/// Both kinds of layers for one number of dimensions.
macro_rules! convolutions {
    ($($dims:literal $layer:ident $function:ident $transposed_layer:ident $transposed:ident)+) => {
        convolution! { $(
            $dims $layer "A convolution", transposed: false, weight: "(out_channels, in_channels / groups, kernel..)",
                $function(stride padding dilation groups);
            $dims $transposed_layer "A transposed convolution", transposed: true,
                weight: "(in_channels, out_channels / groups, kernel..)",
                $transposed(stride padding output_padding groups dilation);
        )+ }
    };
}

convolutions! {
    1 Conv1d conv1d ConvTranspose1d conv_transpose1d
    2 Conv2d conv2d ConvTranspose2d conv_transpose2d
    3 Conv3d conv3d ConvTranspose3d conv_transpose3d
}
