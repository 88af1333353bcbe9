//! The features of a table without its label, for predictions. They are matched to the columns of the training file.

use std::path::Path;

use super::{CsvOptions, FORMAT, LabelColumn, read_table, read_text};
use crate::data::HostArray;
use crate::error::{Error, Location, Result};

/// The columns that a model was trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureColumns {
    /// By name, in any order: the file must have a header.
    Named {
        /// The features in the model's order.
        features: Vec<String>,
        /// The label column; a file may contain it, and it is ignored.
        label: String,
    },
    /// By position: the training file had no header.
    Numbered {
        /// The number of features.
        width: usize,
        /// The position of the label in the training file. A file with one more column contains it too.
        label: LabelColumn,
    },
}

/// Reads the features of a table for predictions: `float32 [rows, features]`. `delimiter` separates cells.
///
/// # Errors
/// As [`super::read_csv`], and if a column is missing or unknown to the model.
pub fn read_csv_features(path: &Path, columns: &FeatureColumns, delimiter: u8) -> Result<HostArray> {
    read_features(&read_text(path)?, path, columns, delimiter)
}

fn read_features(text: &[u8], path: &Path, columns: &FeatureColumns, delimiter: u8) -> Result<HostArray> {
    let options = match columns {
        FeatureColumns::Named { .. } => CsvOptions { header: Some(true), ..CsvOptions::default() },
        FeatureColumns::Numbered { .. } => CsvOptions::default(),
    };
    let options = CsvOptions { label: LabelColumn::Absent, delimiter, ..options };
    let table = read_table(text, path, &options, Some(columns))?;
    HostArray::from_values(&[table.lines.len(), table.columns.len()], &table.features)
}

/// The indices of the model's features, in its order, among the columns with these names (numbers if there is no
/// header).
pub(super) fn select(columns: &FeatureColumns, names: &[String], path: &Path) -> Result<Vec<usize>> {
    let wrong = |message: String| Error::format(path, FORMAT, Location::Line(1), message);
    match columns {
        FeatureColumns::Numbered { width, label } => {
            let label = match (names.len().checked_sub(*width), label) {
                (Some(0), _) => None,
                (Some(1), LabelColumn::Index(index)) => Some(*index),
                (Some(1), _) => Some(*width),
                _ => {
                    let message = format!("it has {} columns, but the model expects {width}", names.len());
                    return Err(wrong(message));
                }
            };
            Ok((0..names.len()).filter(|&column| Some(column) != label).collect())
        }
        FeatureColumns::Named { features, label } => {
            let known = |name: &String| features.contains(name) || name == label;
            if let Some(unknown) = names.iter().find(|name| !known(name)) {
                let message = format!(
                    "the first line has {unknown:?}, which is not a column of the model: it must name the columns the model was trained on, {}",
                    features.join(", ")
                );
                return Err(wrong(message));
            }
            let place = |feature: &String| {
                let mut places = (0..names.len()).filter(|&column| names[column] == *feature);
                match (places.next(), places.next()) {
                    (Some(column), None) => Ok(column),
                    (None, _) => Err(wrong(format!("column {feature:?} is missing: the model needs it"))),
                    _ => Err(wrong(format!("two columns are named {feature:?}"))),
                }
            };
            features.iter().map(place).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_name_or_refused() -> Result<()> {
        let path = Path::new("t.csv");
        let named = FeatureColumns::Named { features: vec!["a".into(), "b".into()], label: "y".into() };
        let values = |text: &str, columns: &FeatureColumns| {
            read_features(text.as_bytes(), path, columns, b',').and_then(|array| array.to_vec::<f32>())
        };
        let refusal = |text: &str, columns: &FeatureColumns| {
            values(text, columns).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(values("a,b\n1,2\n", &named)?, [1.0, 2.0]);
        assert_eq!(values("b,a\n1,2\n3,4\n", &named)?, [2.0, 1.0, 4.0, 3.0]);
        // The label column may be present at any position, and empty.
        assert_eq!(values("b,y,a\n1,,2\n", &named)?, [2.0, 1.0]);
        assert!(refusal("a,c\n1,2\n", &named).contains("line 1: the first line has \"c\""));
        assert!(refusal("a\n1\n", &named).contains("column \"b\" is missing"));
        assert!(refusal("1,2\n3,4\n", &named).contains("it must name the columns"));
        assert!(refusal("a,b,a\n1,2,3\n", &named).contains("two columns are named \"a\""));
        assert!(refusal("a,b\n1,\n", &named).contains("line 2, column b: the value is missing"));

        let numbered = |label| FeatureColumns::Numbered { width: 2, label };
        assert_eq!(values("1,2\n", &numbered(LabelColumn::Last))?, [1.0, 2.0]);
        assert_eq!(values("1,2,x\n", &numbered(LabelColumn::Last))?, [1.0, 2.0]);
        assert_eq!(values("x,1,2\n", &numbered(LabelColumn::Index(0)))?, [1.0, 2.0]);
        assert!(refusal("1,2,3,4\n", &numbered(LabelColumn::Last)).contains("it has 4 columns"));
        assert!(refusal("1\n", &numbered(LabelColumn::Last)).contains("it has 1 columns"));
        Ok(())
    }
}
