//! Pooling layers.

use phynexus::Tensor;

use super::Module;
use crate::Result;

macro_rules! pooling {
    ($($dims:literal $max:ident $max_function:ident $average:ident $average_function:ident
       $adaptive_max:ident $adaptive_max_function:ident $adaptive:ident $adaptive_function:ident)+) => { $(
        #[doc = concat!("Max pooling: the maximum of each window of ", stringify!($dims), " spatial dimensions.")]
        #[derive(Clone, Debug)]
        pub struct $max {
            /// The size of the window.
            pub kernel_size: [usize; $dims],
            /// The stride; `None` means `kernel_size`.
            pub stride: Option<[usize; $dims]>,
            /// Padding on both sides; padded elements are never the maximum.
            pub padding: [usize; $dims],
            /// The spacing between a window's elements.
            pub dilation: [usize; $dims],
            /// Whether the last window may extend past the end.
            pub ceil_mode: bool,
        }

        impl $max {
            /// Pooling with non-overlapping windows.
            pub fn new(kernel_size: [usize; $dims]) -> $max {
                $max { kernel_size, stride: None, padding: [0; $dims], dilation: [1; $dims], ceil_mode: false }
            }
        }

        impl Module for $max {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let $max { kernel_size, stride, padding, dilation, ceil_mode } = *self;
                Ok(input.$max_function(kernel_size, stride, padding, dilation, ceil_mode)?)
            }
            fn describe(&self) -> String {
                format!("{}(kernel_size={:?})", stringify!($max), self.kernel_size)
            }
        }

        #[doc = concat!("Average pooling: the mean of each window of ", stringify!($dims), " spatial dimensions.")]
        #[derive(Clone, Debug)]
        pub struct $average {
            /// The size of the window.
            pub kernel_size: [usize; $dims],
            /// The stride; `None` means `kernel_size`.
            pub stride: Option<[usize; $dims]>,
            /// Zero padding on both sides.
            pub padding: [usize; $dims],
            /// Whether the last window may extend past the end.
            pub ceil_mode: bool,
            /// Whether the mean includes padded elements.
            pub count_include_pad: bool,
        }

        impl $average {
            /// Pooling with non-overlapping windows.
            pub fn new(kernel_size: [usize; $dims]) -> $average {
                $average { kernel_size, stride: None, padding: [0; $dims], ceil_mode: false, count_include_pad: true }
            }
        }

        impl Module for $average {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let $average { kernel_size, stride, padding, ceil_mode, count_include_pad } = *self;
                Ok(input.$average_function(kernel_size, stride, padding, ceil_mode, count_include_pad)?)
            }
            fn describe(&self) -> String {
                format!("{}(kernel_size={:?})", stringify!($average), self.kernel_size)
            }
        }

        #[doc = concat!("Adaptive max pooling: the maxima of evenly spread windows of ", stringify!($dims), " spatial dimensions.")]
        #[derive(Clone, Debug)]
        pub struct $adaptive_max {
            /// The spatial sizes of the output.
            pub output_size: [usize; $dims],
        }

        impl Module for $adaptive_max {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                Ok(input.$adaptive_max_function(self.output_size)?)
            }
            fn describe(&self) -> String {
                format!("{}(output_size={:?})", stringify!($adaptive_max), self.output_size)
            }
        }

        #[doc = concat!("Adaptive average pooling: the means of evenly spread windows of ", stringify!($dims), " spatial dimensions.")]
        #[derive(Clone, Debug)]
        pub struct $adaptive {
            /// The spatial sizes of the output.
            pub output_size: [usize; $dims],
        }

        impl Module for $adaptive {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                Ok(input.$adaptive_function(self.output_size)?)
            }
            fn describe(&self) -> String {
                format!("{}(output_size={:?})", stringify!($adaptive), self.output_size)
            }
        }
    )+ };
}

pooling! {
    1 MaxPool1d max_pool1d AvgPool1d avg_pool1d AdaptiveMaxPool1d adaptive_max_pool1d AdaptiveAvgPool1d adaptive_avg_pool1d
    2 MaxPool2d max_pool2d AvgPool2d avg_pool2d AdaptiveMaxPool2d adaptive_max_pool2d AdaptiveAvgPool2d adaptive_avg_pool2d
    3 MaxPool3d max_pool3d AvgPool3d avg_pool3d AdaptiveMaxPool3d adaptive_max_pool3d AdaptiveAvgPool3d adaptive_avg_pool3d
}
