//! `neurenix verify`.

mod jobs;

use std::{collections::BTreeMap, ffi::OsString, io::IsTerminal, num::NonZero, thread};

use indicatif::{ProgressBar, ProgressStyle};
use neurenix::{
    Error, Result,
    phynexus::{DType, Device, schedule::set_memory_checks},
    verify::{self, Consistency, Failure, Large, Options, Report, Steady},
};

use super::{counted, print_json, write_out};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[arg(long, help = super::DEVICE)]
    device: Option<String>,
    /// Only operations whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Only cases of this dtype, such as float32 or f32
    #[arg(long, value_parser = dtype)]
    dtype: Option<String>,
    /// Number of random graphs to add to the suite
    #[arg(long, value_parser = super::whole::<usize>, allow_negative_numbers = true)]
    random_graphs: Option<usize>,
    /// The seed of the random graphs
    #[arg(long, value_parser = super::whole::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Only a part of the cases: 1/4 is every fourth case, starting with the first
    #[arg(long, value_parser = part, value_name = "PART/PARTS")]
    part: Option<(usize, usize)>,
    /// Compile the cases' kernels for this architecture (sm_80, gfx90a) without running them; needs no device
    #[arg(long, value_name = "ARCHITECTURE", conflicts_with_all = ["device", "all"])]
    compile: Option<String>,
    /// Only one kernel of each kind (one per template and element types). With --compile: only these kernels;
    /// otherwise: only the cases that need them (on the CPU, whose kernels have no kinds, every case)
    #[arg(long, conflicts_with = "jobs")]
    kinds: bool,
    /// Instead of the suite, train two networks for this many steps each; memory must stay constant after the first ten
    #[arg(
        long,
        value_name = "STEPS",
        value_parser = super::whole::<usize>,
        allow_negative_numbers = true,
        conflicts_with_all = ["filter", "part", "compile", "all", "json", "jobs"]
    )]
    steps: Option<usize>,
    /// Instead of the suite, copy between the host, the device and every other device, compare all bytes, and print
    /// times
    #[arg(long, conflicts_with_all = ["filter", "part", "compile", "all", "json", "steps"])]
    copies: bool,
    /// Instead of the suite, compute integer products, convolutions, sums and sorted rows at realistic sizes; every
    /// element must equal the CPU's
    #[arg(long, conflicts_with_all = ["filter", "part", "compile", "all", "json", "steps", "copies"])]
    large: bool,
    /// Instead of the suite, run this many random programs one operation at a time and as graphs with any of their
    /// values held or read early; values and gradients must match bit for bit
    #[arg(
        long,
        value_name = "PROGRAMS",
        value_parser = clap::value_parser!(u64).range(1..=10_000_000),
        allow_negative_numbers = true,
        conflicts_with_all = ["filter", "part", "compile", "all", "steps", "copies", "large"]
    )]
    consistency: Option<u64>,
    /// Divide the suite or the random programs among this many processes; default: one per core, limited by device
    /// memory (one with --kinds)
    #[arg(long, value_parser = super::positive::<u16>, allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Print a row for every operation and dtype
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses `PART/PARTS`, counted from 1, into the library's form.
fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match numbers {
        Some((part @ 1.., parts)) if part <= parts => Ok((part - 1, parts)),
        _ => Err("expected PART/PARTS, such as 1/4".to_owned()),
    }
}

/// The dtype's name in the suite's cases.
fn dtype(text: &str) -> Result<String, String> {
    DType::parse(text).map(|dtype| dtype.name().to_owned()).ok_or_else(|| {
        let known = DType::ALL.map(DType::name).join(", ");
        format!("unknown dtype; expected one of {known}")
    })
}

/// Enables memory checks of plans; disables them when dropped.
struct MemoryChecks;

impl MemoryChecks {
    fn on() -> MemoryChecks {
        set_memory_checks(true);
        MemoryChecks
    }
}

impl Drop for MemoryChecks {
    fn drop(&mut self) {
        set_memory_checks(false);
    }
}

pub(super) fn run(arguments: &Arguments, program: &[OsString]) -> Result<u8> {
    let mut options =
        Options { filter: arguments.filter.clone(), dtype: arguments.dtype.clone(), ..Options::default() };
    if let Some(count) = arguments.random_graphs {
        options.random_graphs = count;
    }
    if let Some(seed) = arguments.seed {
        options.seed = seed;
    }
    if let Some(part) = arguments.part {
        options.part = part;
    }
    if let Some(architecture) = &arguments.compile {
        let compiled = verify::compile(architecture, arguments.kinds, &options)?;
        match arguments.json {
            true => print_json(&compiled)?,
            false => write_out(format_args!("{compiled}"))?,
        }
        return Ok(code(compiled.passed()));
    }
    options.kinds = arguments.kinds;
    let device = super::device(arguments.device.as_deref())?;
    if let Some(steps) = arguments.steps {
        let trained = verify::steady(device, steps)?;
        trained.iter().try_for_each(|network| write_out(format_args!("{network}\n")))?;
        return Ok(code(trained.iter().all(Steady::passed)));
    }
    if arguments.copies {
        let copies = verify::copies(device)?;
        copies.iter().try_for_each(|copy| write_out(format_args!("{copy}\n")))?;
        return Ok(code(copies.iter().all(|copy| copy.exact)));
    }
    if arguments.large {
        let computed = verify::large(device)?;
        computed.iter().try_for_each(|work| write_out(format_args!("{work}\n")))?;
        return Ok(code(computed.iter().all(Large::passed)));
    }
    let hidden = arguments.json || !std::io::stderr().is_terminal();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    let _checks = MemoryChecks::on();
    let jobs = arguments.jobs(device);
    if let Some(programs) = arguments.consistency {
        bar.set_length(programs);
        let found = match jobs {
            1 => {
                let seeds = options.seed..options.seed.saturating_add(programs);
                verify::consistency(device, seeds, options.operations, &mut |done| {
                    bar.set_position(done as u64);
                })
            }
            _ => arguments.divided_programs(program, device, options.seed, programs, jobs, &bar)?,
        };
        bar.finish_and_clear();
        neurenix::phynexus::interrupt::check()?;
        match arguments.json {
            true => print_json(&found)?,
            false => write_out(format_args!("{found}\n"))?,
        }
        return Ok(code(found.passed()));
    }
    let mut report = match jobs {
        1 => verify::run(device, &options, &mut |progress| {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.operation.to_owned());
        }),
        _ => arguments.divided_suite(program, device, &options, jobs, &bar)?,
    };
    bar.finish_and_clear();
    neurenix::phynexus::interrupt::check()?;
    report.rows.sort_by(|a, b| (&a.operation, &a.dtype).cmp(&(&b.operation, &b.dtype)));
    // A process of a divided suite may have nothing to do.
    if report.rows.is_empty() && (options.part.1 == 1 || !arguments.json) {
        return Err(nothing_chosen(&options));
    }
    if arguments.json {
        print_json(&report)?;
    } else {
        if arguments.all {
            write_out(format_args!("{report}\n"))?;
        }
        write_out(format_args!("{}", summary(&report, !arguments.all)))?;
    }
    Ok(code(report.passed()))
}

/// Parts per process. Several, because parts differ in cost.
const PARTS: usize = 4;
/// Device memory to allow for each process: the driver's own use and the cases' tensors.
const MEMORY: u64 = 1 << 30;
/// Maximum number of random programs per process. Limited so that progress is visible.
const PROGRAMS: u64 = 200;

impl Arguments {
    /// The number of concurrent processes.
    fn jobs(&self, device: Device) -> usize {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let room = device.info().total_memory.map_or(1, |bytes| bytes / MEMORY);
        let fitting = || if self.kinds { 1 } else { cores.min(usize::try_from(room).unwrap_or(cores)) };
        self.jobs.map_or_else(fitting, usize::from).max(1)
    }

    /// The arguments of a process for one part of the work.
    fn of_part(&self, device: Device, seed: u64, others: [(&str, String); 1]) -> Vec<String> {
        let mut all: Vec<String> = ["verify", "--json", "--jobs", "1", "--device"].map(String::from).into();
        all.extend([device.name().to_owned(), "--seed".to_owned(), seed.to_string()]);
        let graphs = self.random_graphs.map(|count| count.to_string());
        let given = [("--filter", &self.filter), ("--dtype", &self.dtype), ("--random-graphs", &graphs)];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        all.extend(given.chain(others).flat_map(|(name, value)| [name.to_owned(), value]));
        all
    }

    fn divided_suite(
        &self,
        program: &[OsString],
        device: Device,
        options: &Options,
        jobs: usize,
        bar: &ProgressBar,
    ) -> Result<Report> {
        let (part, parts) = options.part;
        let count = PARTS * jobs;
        let names: Vec<String> = (0..count)
            .map(|n| {
                format!(
                    "{}/{}",
                    part.saturating_add(n.saturating_mul(parts)).saturating_add(1),
                    parts.saturating_mul(count)
                )
            })
            .collect();
        let task = |name: &String| self.of_part(device, options.seed, [("--part", name.clone())]);
        let tasks: Vec<_> = names.iter().map(task).collect();
        let mut found = vec![None; count];
        bar.set_length(count as u64);
        jobs::run(program, &tasks, jobs, &mut |number, result: Result<Report, String>| {
            found[number] = Some(result);
            bar.inc(1);
            true
        })?;
        // In order, so that the table is deterministic.
        let mut report = Report::new(device, options.seed);
        for (name, result) in names.iter().zip(found) {
            match result {
                Some(Ok(part)) => report.merge(part),
                Some(Err(message)) => report.fail(Failure {
                    operation: "process".to_owned(),
                    dtype: String::new(),
                    case: format!("--part {name}"),
                    message,
                }),
                None => {}
            }
        }
        Ok(report)
    }

    fn divided_programs(
        &self,
        program: &[OsString],
        device: Device,
        seed: u64,
        programs: u64,
        jobs: usize,
        bar: &ProgressBar,
    ) -> Result<Consistency> {
        let each = (programs / (PARTS * jobs) as u64).clamp(1, PROGRAMS) as usize;
        let ranges = (0..programs)
            .step_by(each)
            .map(|done| (seed.wrapping_add(done), (programs - done).min(each as u64)));
        let task =
            |(seed, count): (u64, u64)| self.of_part(device, seed, [("--consistency", count.to_string())]);
        let tasks: Vec<_> = ranges.map(task).collect();
        let mut all = Consistency::default();
        jobs::run(program, &tasks, jobs, &mut |number, result: Result<Consistency, String>| {
            match result {
                Ok(found) => all.merge(found),
                Err(message) => all.differences.push(format!("{}: {message}", tasks[number].join(" "))),
            }
            bar.set_position(all.programs as u64);
            !all.is_enough()
        })?;
        Ok(all)
    }
}

/// The error for options that select no case.
fn nothing_chosen(options: &Options) -> Error {
    let filter = options.filter.clone().unwrap_or_default();
    let known = verify::operations();
    match &options.dtype {
        Some(dtype) if known.iter().any(|name| name.contains(&filter)) => {
            let message = format!(
                "no operation whose name contains {filter:?} has a case of {dtype}: change one of the two options"
            );
            Error::data("--filter and --dtype", message)
        }
        None if known.iter().any(|name| name.contains(&filter)) => {
            Error::data("--part", "no case is left: there are fewer cases than parts")
        }
        _ => {
            let message = format!("no operation name contains {filter:?}; available: {}", known.join(", "));
            Error::data("--filter", message)
        }
    }
}

fn code(passed: bool) -> u8 {
    if passed { super::SUCCESS } else { super::FAILED_CHECK }
}

/// A short summary: counts, the greatest error, reasons for cases that did not run on the device, the failures if
/// requested, and the conclusion.
fn summary(report: &Report, failures: bool) -> String {
    let total = report.total();
    let mut lines = vec![
        format!("{} ({}), seed {}", report.device, report.model, report.seed),
        format!(
            "{} of {}: {} passed, {} on the CPU, {} failed, {} not done",
            counted(total.cases, "case"),
            counted(report.rows.len(), "pair") + " of operation and dtype",
            total.passed,
            total.elsewhere,
            total.failed,
            total.unsupported
        ),
        format!(
            "{} compared; {} skipped because more than one value is correct",
            counted(total.compared, "element"),
            total.skipped
        ),
        format!("greatest error of a correct element: {:.2} of its tolerance", total.worst_share),
    ];
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in &report.rows {
        let kinds = [
            ("on the CPU", &row.elsewhere_reason, row.elsewhere),
            ("not done", &row.reason, row.unsupported),
        ];
        for (what, reason, cases) in kinds {
            if let Some(reason) = reason {
                *reasons.entry((what, reason)).or_default() += cases;
            }
        }
    }
    lines.extend(
        reasons
            .iter()
            .map(|((what, reason), cases)| format!("{what}, {}: {reason}", counted(*cases, "case"))),
    );
    if failures {
        lines.extend(report.failures.iter().map(|failure| {
            format!("\n{} {}: {}\n  {}", failure.operation, failure.dtype, failure.case, failure.message)
        }));
    }
    lines.push(match total.failed {
        0 if !report.passed() => {
            "FAILED: the device ran none of the cases; the CPU ran all of them.".to_owned()
        }
        0 => "No result is outside its bounds.".to_owned(),
        failed => format!("{} FAILED.", counted(failed, "case")),
    });
    lines.join("\n") + "\n"
}
