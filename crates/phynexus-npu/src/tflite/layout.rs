//! How a tensor's elements are laid out in a file.

/// The order of a value's extents in a file, relative to the network's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    /// The network's.
    Network,
    /// The second extent, the channels, is the last.
    ChannelsLast,
    /// A matrix that is the network's `[n, c * h * w]`; its columns are in the order `[h, w, c]`.
    FlatChannelsLast([usize; 3]),
}

impl Layout {
    /// The network's axis for each axis of the file's tensor of this rank.
    pub(crate) fn axes(&self, rank: usize) -> Vec<usize> {
        match self {
            Layout::ChannelsLast if rank > 2 => [0].into_iter().chain(2..rank).chain([1]).collect(),
            _ => (0..rank).collect(),
        }
    }

    /// The file's axis of an axis of the network.
    pub(crate) fn axis(&self, axis: usize, rank: usize) -> usize {
        self.axes(rank).iter().position(|&at| at == axis).unwrap_or(axis)
    }

    /// The extents in the file of a value with these in the network. The writer refuses those that 32 bits do not hold.
    pub(crate) fn shape(&self, shape: &[usize]) -> Vec<i32> {
        let extent = |axis: usize| i32::try_from(shape[axis]).unwrap_or(i32::MAX);
        self.axes(shape.len()).into_iter().map(extent).collect()
    }

    /// Whether the elements of a value of this shape have the same order as in the network.
    pub(crate) fn is_network_order(&self, shape: &[usize]) -> bool {
        match self {
            Layout::Network => true,
            Layout::ChannelsLast => {
                let is_flat = |extents: &[usize]| extents.iter().product::<usize>() == 1;
                shape.len() < 3 || shape[1] == 1 || is_flat(&shape[2..])
            }
            &Layout::FlatChannelsLast([channels, height, width]) => channels == 1 || height * width == 1,
        }
    }

    /// Elements in the file's order; `shape` is the network's.
    pub(crate) fn to_stored<T: Copy>(&self, elements: &[T], shape: &[usize]) -> Vec<T> {
        match self {
            Layout::Network => elements.to_vec(),
            Layout::ChannelsLast => permuted(elements, shape, &self.axes(shape.len())),
            &Layout::FlatChannelsLast([channels, height, width]) => {
                permuted(elements, &[shape[0], channels, height, width], &[0, 2, 3, 1])
            }
        }
    }

    /// Elements in the network's order; `shape` is the network's.
    pub(crate) fn to_network<T: Copy>(&self, elements: &[T], shape: &[usize]) -> Vec<T> {
        match self {
            Layout::Network => elements.to_vec(),
            Layout::ChannelsLast => {
                let rank = shape.len();
                let stored: Vec<usize> = self.axes(rank).into_iter().map(|axis| shape[axis]).collect();
                let back: Vec<usize> = (0..rank).map(|axis| self.axis(axis, rank)).collect();
                permuted(elements, &stored, &back)
            }
            &Layout::FlatChannelsLast([channels, height, width]) => {
                permuted(elements, &[shape[0], height, width, channels], &[0, 3, 1, 2])
            }
        }
    }
}

/// Elements of a tensor whose axes are put in another order: axis `i` of the result is axis `order[i]` of `shape`.
pub(crate) fn permuted<T: Copy>(elements: &[T], shape: &[usize], order: &[usize]) -> Vec<T> {
    let rank = shape.len();
    let mut strides = vec![1; rank];
    (0..rank.saturating_sub(1)).rev().for_each(|axis| strides[axis] = strides[axis + 1] * shape[axis + 1]);
    let mut at = vec![0; rank];
    let mut place = 0;
    let mut result = Vec::with_capacity(elements.len());
    for _ in 0..elements.len() {
        result.push(elements[place]);
        for (position, &axis) in order.iter().enumerate().rev() {
            at[position] += 1;
            place += strides[axis];
            if at[position] < shape[axis] {
                break;
            }
            place -= strides[axis] * shape[axis];
            at[position] = 0;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_move_elements_there_and_back() {
        let elements: Vec<usize> = (0..2 * 3 * 4 * 5).collect();
        let cases = [
            (Layout::Network, vec![2, 3, 4, 5]),
            (Layout::ChannelsLast, vec![2, 3, 4, 5]),
            (Layout::ChannelsLast, vec![2, 3, 20]),
            (Layout::FlatChannelsLast([3, 4, 5]), vec![2, 60]),
        ];
        for (layout, shape) in cases {
            let stored = layout.to_stored(&elements, &shape);
            assert_eq!(layout.to_network(&stored, &shape), elements);
            assert_eq!(layout.is_network_order(&shape), stored == elements);
        }
        // Channel 1 of row 0, column 0 is the second element of the first pixel.
        assert_eq!(Layout::ChannelsLast.to_stored(&elements, &[2, 3, 4, 5])[1], 20);
        assert_eq!(Layout::ChannelsLast.shape(&[2, 3, 4, 5]), [2, 4, 5, 3]);
        assert_eq!(Layout::ChannelsLast.axis(1, 4), 3);
    }
}
