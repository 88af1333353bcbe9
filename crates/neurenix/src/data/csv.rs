//! CSV tables: numeric features and one column to predict.

use std::collections::BTreeSet;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};

use super::dataset::{Columns, Dataset};
use crate::array::HostArray;
use crate::error::{Error, Location, Result};
use crate::io::Source;

mod features;

use features::select;
pub use features::{FeatureColumns, read_csv_features};

const FORMAT: &str = "CSV";
/// By default, an integer label column with more distinct values than this is a quantity, not a class.
const MOST_NUMERIC_CLASSES: usize = 100;
/// Spellings of missing values.
const MISSING: [&str; 8] = ["", "?", "na", "n/a", "nan", "null", "none", "-"];

/// The column to predict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The last column.
    #[default]
    Last,
    /// The column with this name in the header.
    Name(String),
    /// The column with this index, counted from 0.
    Index(usize),
    /// None: every column is a feature.
    Absent,
}

/// What the label column contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CsvTask {
    /// Classes if it contains text, or integers with at most 100 distinct values. Quantities otherwise.
    #[default]
    Detect,
    /// Classes.
    Classification,
    /// Quantities.
    Regression,
}

/// How a CSV file is read. The default detects everything and takes the last column as the label.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvOptions {
    /// The column to predict.
    pub label: LabelColumn,
    /// What the label column contains.
    pub task: CsvTask,
    /// Whether the first line is a header. `None` detects it: a first line with a non-numeric feature is a header.
    pub header: Option<bool>,
    /// The character between cells.
    pub delimiter: u8,
    /// The known classes in order, for example those of an existing model. Other labels are an error. `None` collects
    /// the labels of the file and sorts them (numbers by value).
    pub classes: Option<Vec<String>>,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            label: LabelColumn::Last,
            task: CsvTask::Detect,
            header: None,
            delimiter: b',',
            classes: None,
        }
    }
}

/// Reads a table. Inputs are `float32 [rows, features]`; targets are `int64 [rows]` classes or `float32 [rows, 1]`
/// quantities.
///
/// # Errors
/// If the file cannot be read. With line and column: if rows differ in length, a feature is not a finite number, a
/// value is missing, or a label is not a known class.
pub fn read_csv(path: &Path, options: &CsvOptions) -> Result<Dataset> {
    read(&read_text(path)?, path, options)
}

/// Reads the whole text. The table takes about as much memory anyway, and line numbers are exact.
fn read_text(path: &Path) -> Result<Vec<u8>> {
    Source::open(path, FORMAT)?.take_rest(usize::MAX, "the table")
}

struct Table {
    features: Vec<f32>,
    labels: Vec<String>,
    /// The line number of each row.
    lines: Vec<u64>,
    /// The names of the features.
    columns: Vec<String>,
    label_name: String,
    named: bool,
}

fn read(text: &[u8], path: &Path, options: &CsvOptions) -> Result<Dataset> {
    if options.label == LabelColumn::Absent {
        return Err(Error::data("CSV", "a dataset for training needs a label column"));
    }
    let table = read_table(text, path, options, None)?;
    let rows = table.labels.len();
    let width = table.features.len() / rows;
    let inputs = HostArray::from_values(&[rows, width], &table.features)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let description = format!("{name}, predicting column {}", table.label_name);
    let wrong = |row: usize, message: String| {
        let location = Location::Cell { line: table.lines[row], column: table.label_name.clone() };
        Error::format(path, FORMAT, location, message)
    };
    let numbers: Vec<Option<f64>> = table.labels.iter().map(|label| number(label)).collect();
    let classify = match options.task {
        CsvTask::Classification => true,
        CsvTask::Regression => false,
        CsvTask::Detect => options.classes.is_some() || looks_like_classes(&numbers),
    };
    if !classify {
        let mut targets = Vec::with_capacity(rows);
        for (row, label) in table.labels.iter().enumerate() {
            let explain = |message: Fault| wrong(row, message.of_label(label));
            targets.push(finite(label).map_err(explain)?);
        }
        let targets = HostArray::from_values(&[rows, 1], &targets)?;
        return Ok(Dataset::regression(description, inputs, targets)?.with_columns(table.into_columns()));
    }
    let classes = options.classes.clone().unwrap_or_else(|| distinct_labels(&table.labels, &numbers));
    let index: std::collections::HashMap<&str, i64> =
        classes.iter().enumerate().map(|(index, class)| (class.as_str(), index as i64)).collect();
    let mut targets = Vec::with_capacity(rows);
    for (row, label) in table.labels.iter().enumerate() {
        targets.push(*index.get(label.as_str()).ok_or_else(|| {
            wrong(row, format!("label {label:?} is not one of the known classes: {}", classes.join(", ")))
        })?);
    }
    let targets = HostArray::from_values(&[rows], &targets)?;
    Ok(Dataset::classes(description, inputs, targets, classes)?.with_columns(table.into_columns()))
}

impl Table {
    fn into_columns(self) -> Columns {
        Columns { features: self.columns, label: self.label_name, named: self.named, lines: self.lines }
    }
}

/// Reads the columns of `selection`, or all columns but the label, as features.
fn read_table(
    text: &[u8],
    path: &Path,
    options: &CsvOptions,
    selection: Option<&FeatureColumns>,
) -> Result<Table> {
    let mut reader = ReaderBuilder::new()
        .delimiter(options.delimiter)
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text);
    let mut record = StringRecord::new();
    let mut next = |record: &mut StringRecord| reader.read_record(record).map_err(|e| csv_error(path, e));
    if !next(&mut record)? {
        return Err(Error::format(path, FORMAT, Location::Whole, "it has no rows"));
    }
    if let Some(first) = record.get(0).and_then(|cell| cell.strip_prefix('\u{feff}')) {
        // Skip a byte order mark, which spreadsheets write.
        let rest = record.iter().skip(1);
        record = std::iter::once(first.trim()).chain(rest).collect();
    }
    let width = record.len();
    let label = label_column(&record, options, path)?;
    if width < 2 && label.is_some() {
        let delimiter = char::from(options.delimiter);
        return Err(Error::format(
            path,
            FORMAT,
            Location::Line(1),
            format!(
                "a table needs a feature and a label, but the delimiter {delimiter:?} separates only one column: try another delimiter"
            ),
        ));
    }
    let first: Vec<String> = record.iter().map(str::to_owned).collect();
    let columns: Vec<usize> = match selection {
        Some(selection) => select(selection, &first, path)?,
        None => (0..width).filter(|column| Some(*column) != label).collect(),
    };
    let looks_like_header = || columns.iter().any(|&c| !is_missing(&first[c]) && number(&first[c]).is_none());
    let named = matches!(options.label, LabelColumn::Name(_));
    let has_header = options.header.unwrap_or_else(|| named || looks_like_header());
    let name = |(column, name): (usize, &String)| match has_header && !name.is_empty() {
        true => name.clone(),
        false => (column + 1).to_string(),
    };
    let names: Vec<String> = first.iter().enumerate().map(name).collect();

    let mut table = Table {
        features: Vec::new(),
        labels: Vec::new(),
        lines: Vec::new(),
        columns: columns.iter().map(|&column| names[column].clone()).collect(),
        named: has_header,
        label_name: label.map_or(String::new(), |column| names[column].clone()),
    };
    let mut more = !has_header || next(&mut record)?;
    while more {
        let line = line_of(text, &record);
        if record.len() != width {
            let message = format!("it has {} cells, but the first line has {width}", record.len());
            return Err(Error::format(path, FORMAT, Location::Line(line), message));
        }
        for column in columns.iter().copied().chain(label) {
            let cell = record.get(column).unwrap_or_default();
            let wrong = |message: String| {
                Error::format(path, FORMAT, Location::Cell { line, column: names[column].clone() }, message)
            };
            if is_missing(cell) {
                return Err(wrong(
                    "the value is missing: fill it in, or remove the row or the column before training"
                        .to_owned(),
                ));
            }
            if Some(column) == label {
                table.labels.push(cell.to_owned());
            } else {
                table.features.push(finite(cell).map_err(|fault| wrong(fault.of_feature(cell)))?);
            }
        }
        table.lines.push(line);
        more = next(&mut record)?;
    }
    if table.lines.is_empty() {
        return Err(Error::format(path, FORMAT, Location::Whole, "it has a header but no rows"));
    }
    Ok(table)
}

/// The line number of a record. The parser's position is before any blank lines that it skipped.
fn line_of(text: &[u8], record: &StringRecord) -> u64 {
    let Some(position) = record.position() else { return 1 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let skipped = rest.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).filter(|&&byte| byte == b'\n');
    position.line() + skipped.count() as u64
}

fn label_column(first: &StringRecord, options: &CsvOptions, path: &Path) -> Result<Option<usize>> {
    let width = first.len();
    let found = match &options.label {
        LabelColumn::Absent => return Ok(None),
        LabelColumn::Last => width.checked_sub(1),
        LabelColumn::Index(index) => (*index < width).then_some(*index),
        LabelColumn::Name(name) => {
            let mut matching = first.iter().enumerate().filter(|(_, cell)| cell == name).map(|(c, _)| c);
            let found = matching.next();
            if found.is_some() && matching.next().is_some() {
                return Err(Error::format(
                    path,
                    FORMAT,
                    Location::Line(1),
                    format!("two columns are named {name:?}"),
                ));
            }
            found
        }
    };
    found.map(Some).ok_or_else(|| {
        let columns: Vec<&str> = first.iter().collect();
        let message = match &options.label {
            LabelColumn::Name(name) => {
                let hint = if name.parse::<usize>().is_ok() { " (columns are numbered from 1)" } else { "" };
                format!("no column is named {name:?}{hint}; the columns are: {}", columns.join(", "))
            }
            LabelColumn::Index(index) => {
                format!("there is no column {}: the file has {width}", index.saturating_add(1))
            }
            LabelColumn::Last | LabelColumn::Absent => "it has no columns".to_owned(),
        };
        Error::format(path, FORMAT, Location::Line(1), message)
    })
}

fn is_missing(cell: &str) -> bool {
    MISSING.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

fn number(cell: &str) -> Option<f64> {
    cell.parse().ok()
}

/// Why a cell is not a `float32`.
#[derive(Clone, Copy, Debug)]
enum Fault {
    TooLarge,
    NotANumber,
}

impl Fault {
    fn of_feature(self, cell: &str) -> String {
        match self {
            Fault::TooLarge => format!("{cell:?} is not a finite float32"),
            Fault::NotANumber => format!(
                "{cell:?} is not a number: features must be numeric (encode categories as numbers), and only the label may be text"
            ),
        }
    }
    fn of_label(self, cell: &str) -> String {
        match self {
            Fault::TooLarge => format!("{cell:?} is not a finite float32"),
            Fault::NotANumber => {
                format!(
                    "{cell:?} is not a number: a regression predicts numbers, text labels are for classification"
                )
            }
        }
    }
}

fn finite(cell: &str) -> Result<f32, Fault> {
    match number(cell) {
        Some(value) if (value as f32).is_finite() => Ok(value as f32),
        Some(_) => Err(Fault::TooLarge),
        None => Err(Fault::NotANumber),
    }
}

fn looks_like_classes(numbers: &[Option<f64>]) -> bool {
    let mut distinct = BTreeSet::new();
    for number in numbers {
        match number {
            None => return true,
            Some(value) if value.fract() != 0.0 => return false,
            Some(value) => {
                // Adding 0 makes -0 and 0 the same class.
                distinct.insert((value + 0.0).to_bits());
            }
        }
    }
    distinct.len() <= MOST_NUMERIC_CLASSES
}

/// The distinct labels: sorted by value if all are numbers, else alphabetically.
fn distinct_labels(labels: &[String], numbers: &[Option<f64>]) -> Vec<String> {
    let distinct: BTreeSet<&String> = labels.iter().collect();
    let mut distinct: Vec<String> = distinct.into_iter().cloned().collect();
    if numbers.iter().all(Option::is_some) {
        let value = |label: &String| number(label).unwrap_or(f64::NAN);
        distinct.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    distinct
}

fn csv_error(path: &Path, error: csv::Error) -> Error {
    let location = error.position().map_or(Location::Whole, |position| Location::Line(position.line()));
    match error.into_kind() {
        csv::ErrorKind::Io(e) => Error::io("read", path, e),
        csv::ErrorKind::Utf8 { .. } => {
            Error::format(path, FORMAT, location, "it is not UTF-8 text: save it as UTF-8")
        }
        other => Error::format(path, FORMAT, location, format!("it cannot be parsed ({other:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::test_support::survives_corruption;

    fn parse(text: &str, options: &CsvOptions) -> Result<Dataset> {
        read(text.as_bytes(), Path::new("t.csv"), options)
    }

    fn message(text: &str, options: &CsvOptions) -> String {
        parse(text, options).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn headers_classes_and_columns_are_detected() -> Result<()> {
        let data = parse(
            "\u{feff}width,height,kind\n1,2,rose\r\n3, 4.5 ,\"lily, white\"\n5,6,rose\n",
            &CsvOptions::default(),
        )?;
        assert_eq!(data.stored_inputs().to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.5, 5.0, 6.0]);
        assert_eq!(data.class_names(), ["lily, white", "rose"]);
        assert_eq!(data.stored_targets().to_vec::<i64>()?, [1, 0, 1]);
        assert_eq!(data.description(), "t.csv, predicting column kind");
        // No header; classes are sorted by value.
        let data = parse("0.5,10\n1.5,9\n", &CsvOptions::default())?;
        assert_eq!((data.len(), data.class_names()), (2, &["9".to_owned(), "10".to_owned()][..]));
        // The label comes first. A text label does not turn the first row into a header.
        let options = CsvOptions { label: LabelColumn::Index(0), ..CsvOptions::default() };
        assert_eq!(parse("a,1\nb,2\n", &options)?.len(), 2);
        let options = CsvOptions { label: LabelColumn::Name("y".into()), ..CsvOptions::default() };
        assert_eq!(parse("y,x\n1,2\n", &options)?.stored_inputs().to_vec::<f32>()?, [2.0]);
        Ok(())
    }

    #[test]
    fn quantities_are_regression() -> Result<()> {
        let data = parse("x;y\n1;0.5\n2;-3e2\n", &CsvOptions { delimiter: b';', ..CsvOptions::default() })?;
        assert!(data.class_names().is_empty());
        assert_eq!(
            (data.stored_targets().shape(), data.stored_targets().to_vec::<f32>()?),
            (&[2usize, 1][..], vec![0.5, -300.0])
        );
        let many: String = (0..200).map(|i| format!("{i},{i}\n")).collect();
        assert!(parse(&many, &CsvOptions::default())?.class_names().is_empty());
        let forced = CsvOptions { task: CsvTask::Classification, ..CsvOptions::default() };
        assert_eq!(parse(&many, &forced)?.class_names().len(), 200);
        let forced = CsvOptions { task: CsvTask::Regression, ..CsvOptions::default() };
        assert_eq!(message("1,2\n1,x\n", &forced).split(": ").next(), Some("t.csv"));
        Ok(())
    }

    #[test]
    fn errors_name_line_and_column() {
        let default = CsvOptions::default();
        assert_eq!(
            message("a,b,c\n1,2,x\n\n1,,y\n", &default),
            "t.csv: not a valid CSV file, line 4, column b: the value is missing: fill it in, or remove the row or the \
             column before training"
        );
        assert!(message("a,b\n1,?\n", &default).contains("line 2, column b"));
        assert!(message("1,2,3\n1,2\n", &default).contains("line 2: it has 2 cells"));
        assert!(message("1,2,3\n1,abc,3\n", &default).contains("line 2, column 2: \"abc\" is not a number"));
        assert!(message("1,2\n1e300,2\n", &default).contains("not a finite float32"));
        assert!(message("", &default).contains("no rows"));
        assert!(message("a,b\n", &default).contains("no rows"));
        assert!(message("1\n2\n", &default).contains("delimiter"));
        let named = CsvOptions { label: LabelColumn::Name("z".into()), ..default.clone() };
        assert!(message("x,y\n1,2\n", &named).contains("no column is named \"z\"; the columns are: x, y"));
        let index = CsvOptions { label: LabelColumn::Index(2), ..default.clone() };
        assert!(message("1,2\n", &index).contains("no column 3: the file has 2"));
        let zero = CsvOptions { label: LabelColumn::Name("0".into()), ..default.clone() };
        assert!(message("1,2\n", &zero).contains("no column is named \"0\" (columns are numbered from 1)"));
        let quantity = CsvOptions { task: CsvTask::Regression, ..default.clone() };
        assert!(
            message("1,2\n1,x\n", &quantity)
                .contains("line 2, column 2: \"x\" is not a number: a regression")
        );
        let known = CsvOptions { classes: Some(vec!["a".into()]), ..default };
        assert!(message("1,a\n2,b\n", &known).contains("line 2, column 2: label \"b\""));
    }

    #[test]
    fn rows_know_their_lines() -> Result<()> {
        let data = parse("a,y\n1,p\n\n2,q\n", &CsvOptions::default())?;
        let columns = data.columns().cloned();
        let expected =
            Columns { features: vec!["a".into()], label: "y".into(), named: true, lines: vec![2, 4] };
        assert_eq!(columns, Some(expected));
        assert_eq!(data.split_at(1)?.1.source_line(0), Some(4));
        assert_eq!(data.source_line(2), None);
        Ok(())
    }

    #[test]
    fn corrupt_files_are_errors_never_panics() {
        let valid = "a,b,kind\n1,2,7\n3,4,\"1\"\"\"\n5,-6e3,7\n";
        for options in
            [CsvOptions::default(), CsvOptions { task: CsvTask::Regression, ..CsvOptions::default() }]
        {
            survives_corruption(valid.as_bytes(), 3000, |bytes| {
                read(bytes, Path::new("t.csv"), &options).map(drop)
            });
            for length in 0..valid.len() {
                let _ = read(&valid.as_bytes()[..length], Path::new("t.csv"), &options);
            }
        }
    }
}
