//! The printed layouts of fragments against AMD's documents: what every lane has, before and after an instruction.

use super::MATRICES;

const SIDE: usize = 16;

/// What is defined as `name` for one family.
fn defined(name: &str, rdna: bool) -> &'static str {
    let (first, rest) = MATRICES.split_once("#else").unwrap();
    let text = if rdna { first } else { rest.split_once("#endif").unwrap().0 };
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    lines.find(|(found, _)| *found == name).unwrap().1
}

/// An expression of C: sums of what is multiplied and divided from left to right.
fn evaluate(expression: &str, l: usize, i: usize) -> usize {
    let number = |word: &str| match word {
        "l" => l,
        "i" => i,
        digits => digits.parse().unwrap(),
    };
    let term = |term: &str| {
        let words: Vec<&str> = term.split(' ').collect();
        words[1..].chunks(2).fold(number(words[0]), |value, pair| match pair[0] {
            "*" => value * number(pair[1]),
            "/" => value / number(pair[1]),
            other => panic!("{other}"),
        })
    };
    expression.split(" + ").map(term).sum()
}

/// A family: its wavefronts, and where its instructions' operands are by AMD's documents.
struct Family {
    rdna: bool,
    lanes: usize,
    /// By the number of summands of the instruction: the lanes and the element of each that hold `A[i][k]`, and as well
    /// `B[k][i]`.
    factor: fn(usize, usize) -> (Vec<usize>, usize),
    /// The lane and the element that hold `D[i][j]`.
    sum: fn(usize, usize) -> (usize, usize),
}

const MFMA: Family = Family {
    rdna: false,
    lanes: 64,
    factor: |i, k| (vec![16 * (k / 4) + i], k % 4),
    sum: |i, j| (16 * (i / 4) + j, i % 4),
};

const WMMA: Family = Family {
    rdna: true,
    lanes: 32,
    factor: |i, k| (vec![i, i + 16], k),
    sum: |i, j| (16 * i % 32 + j, i / 2),
};

/// Numbers whose products and sums are exact and tell places apart.
fn element(row: usize, column: usize, seed: usize) -> i64 {
    ((row * 31 + column * 17 + seed) * 2_654_435_761 % 1009) as i64 - 504
}

type Registers = Vec<Vec<i64>>;

impl Family {
    fn define(&self, name: &str, l: usize, i: usize) -> usize {
        evaluate(defined(name, self.rdna), l, i)
    }

    /// What the lanes load of a factor of which this is row `outer` (of the left one) at summand `k`.
    fn load(&self, matrix: impl Fn(usize, usize) -> i64) -> Registers {
        let summands = self.define("SUMMANDS", 0, 0);
        let lane =
            |l: usize| (0..summands).map(|e| matrix(l % SIDE, self.define("FIRST", l, 0) + e)).collect();
        (0..self.lanes).map(lane).collect()
    }

    /// What the lanes store of a sum.
    fn store(&self, sums: &Registers) -> Vec<Vec<i64>> {
        let mut matrix = vec![vec![i64::MIN; SIDE]; SIDE];
        for (l, elements) in sums.iter().enumerate() {
            for (i, &sum) in elements.iter().enumerate() {
                matrix[self.define("ROW", l, i)][l % SIDE] = sum;
            }
        }
        matrix
    }

    /// The instruction by its document: every copy of an element must be the same.
    fn multiply(&self, left: &Registers, right: &Registers) -> Registers {
        let read = |registers: &Registers, i: usize, k: usize| {
            let (lanes, at) = (self.factor)(i, k);
            let copies: Vec<i64> = lanes.iter().map(|&l| registers[l][at]).collect();
            assert!(copies.iter().all(|&copy| copy == copies[0]));
            copies[0]
        };
        let mut sums = vec![vec![0; self.define("SUMS", 0, 0)]; self.lanes];
        for i in 0..SIDE {
            for j in 0..SIDE {
                let (lane, at) = (self.sum)(i, j);
                sums[lane][at] = (0..SIDE).map(|k| read(left, i, k) * read(right, j, k)).sum();
            }
        }
        sums
    }
}

/// The product of two matrices.
fn product() -> Vec<Vec<i64>> {
    let entry = |i: usize, j: usize| (0..SIDE).map(|k| element(i, k, 1) * element(k, j, 2)).sum();
    (0..SIDE).map(|i| (0..SIDE).map(|j| entry(i, j)).collect()).collect()
}

#[test]
fn lanes_have_what_the_instructions_want() {
    for family in [MFMA, WMMA] {
        let left = family.load(|i, k| element(i, k, 1));
        let right = family.load(|j, k| element(k, j, 2));
        assert_eq!(family.store(&family.multiply(&left, &right)), product(), "of {} lanes", family.lanes);
    }
}

/// Four instructions of 16 by 4 by 16 `float`s, each of one summand of every lane: `A[i][k]` and `B[k][i]` are in lane
/// `16 * k + i`, and sums lie as those of 16-bit factors do.
#[test]
fn factors_are_multiplied_summand_by_summand_on_gfx90a() {
    let left = MFMA.load(|i, k| element(i, k, 1));
    let right = MFMA.load(|j, k| element(k, j, 2));
    let mut sums = vec![vec![0; 4]; 64];
    for at in 0..4 {
        for i in 0..SIDE {
            for j in 0..SIDE {
                let (lane, element) = (MFMA.sum)(i, j);
                let summands = (0..4).map(|k| left[16 * k + i][at] * right[16 * k + j][at]);
                sums[lane][element] += summands.sum::<i64>();
            }
        }
    }
    assert_eq!(MFMA.store(&sums), product());
}
