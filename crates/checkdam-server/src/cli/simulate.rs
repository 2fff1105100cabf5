//! `checkdam simulate`: replays an access log through rules.

mod text_report;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use checkdam::RuleSet;
use checkdam_service::config::RuleFileArguments;
use checkdam_service::rulebook::FileTexts;
use checkdam_tools::simulate::{self, SimulateOptions, SimulateProgress, Summary};
use indicatif::{ProgressBar, ProgressStyle};

use super::command_error::CommandError;
use super::signals::stop_on_interrupt;
use super::table::printable;
use super::{print, print_notice, print_value};

#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArguments {
    /// Rule file or folder, checkdam's or envoyproxy/ratelimit's format
    #[arg(long, value_name = "PATH", required_unless_present = "suggest")]
    rules: Option<PathBuf>,

    /// Second rule file or folder to compare with the first
    #[arg(long, value_name = "PATH", requires = "rules")]
    against: Option<PathBuf>,

    #[command(flatten)]
    files: RuleFileArguments,

    #[command(flatten)]
    options: SimulateOptions,

    /// Write an HTML report with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write the chart of requests over time (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &SimulateArguments) -> anyhow::Result<ExitCode> {
    refuse_to_overwrite_inputs(arguments)?;
    if let Some(key) = arguments.options.suggest.iter().find(|key| key.attributes().next().is_none()) {
        bail!(
            "--suggest {0:?} names no attribute, so all would share one bucket: write for example '{0}:{{{0}}}'",
            key.text()
        );
    }
    let mut sides = Vec::new();
    for path in arguments.rules.iter().chain(&arguments.against) {
        sides.push((path.display().to_string(), load(path, arguments)?));
    }
    let progress = SimulateProgress::default();
    stop_on_interrupt(&progress.is_stopped)?;
    let bar = progress_bar(&arguments.options.logs);
    let done = simulate::run(&arguments.options, sides, &progress, |lines| {
        bar.set_position(progress.read.load(Ordering::Relaxed));
        bar.set_message(format!("{} lines", simulate::with_thousands_separators(lines)));
    });
    bar.finish_and_clear();
    let summary = done.map_err(CommandError::invalid)?;
    print_warnings(&summary, arguments);
    if summary.requests == 0 && summary.unreadable > 0 {
        bail!(CommandError::invalid(format!(
            "none of {} lines could be read: see --format and --time-field",
            summary.lines
        )));
    }
    if summary.requests == 0 {
        bail!(CommandError::invalid("the logs contain no requests".to_owned()));
    }
    let is_small = |one: &&simulate::Suggestion| one.subjects * one.sampled_one_in < simulate::SUBJECTS_MIN;
    if let Some(one) = summary.suggestions.iter().find(is_small) {
        bail!(CommandError::invalid(format!(
            "the logs have {} subjects of {:?}: at least {} are needed to tell usual from unusual; give longer logs",
            one.subjects,
            one.key,
            simulate::SUBJECTS_MIN
        )));
    }
    for (path, text) in [(&arguments.report, simulate::html as fn(&Summary) -> String), (&arguments.svg, simulate::svg)]
    {
        if let Some(path) = path {
            std::fs::write(path, text(&summary)).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if arguments.json {
        print_value(&serde_json::to_value(&summary)?)?;
    } else {
        print(text_report::render(&summary).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing that is read may be written over.
fn refuse_to_overwrite_inputs(arguments: &SimulateArguments) -> anyhow::Result<()> {
    let place = |path: &PathBuf| std::fs::canonicalize(path).ok();
    let read: Vec<PathBuf> =
        arguments.options.logs.iter().chain(&arguments.rules).chain(&arguments.against).filter_map(place).collect();
    for path in arguments.report.iter().chain(&arguments.svg) {
        if place(path).is_some_and(|place| read.contains(&place)) {
            bail!("{} is read, so it cannot be written: give another name with --report or --svg", path.display());
        }
    }
    if arguments.report.is_some() && arguments.report == arguments.svg {
        bail!("--report and --svg name the same file: give two names");
    }
    Ok(())
}

/// Reads a rule file that can be tried on a log.
fn load(path: &Path, arguments: &SimulateArguments) -> anyhow::Result<RuleSet> {
    let (rules, definitions) = FileTexts::read(path)?.load(&arguments.files.options())?;
    if let Some(tree) = definitions.trees.first() {
        let domains: Vec<&str> = definitions.trees.iter().map(|tree| tree.domain.as_str()).collect();
        if arguments.options.descriptor.is_empty() {
            bail!(
                "{}: it limits descriptors of the domain {:?}: say what Envoy would send, such as \
                 --domain {} --descriptor 'remote_address={{ip}}'",
                path.display(),
                tree.domain,
                tree.domain
            );
        }
        let domain = arguments.options.domain.as_deref().unwrap_or_default();
        if !domains.contains(&domain) {
            bail!("{}: there is no domain {domain:?}: use --domain with one of {}", path.display(), domains.join(", "));
        }
    }
    Ok(rules)
}

/// What people must know of a result, on standard error.
fn print_warnings(summary: &Summary, arguments: &SimulateArguments) {
    for fault in &summary.faults {
        print_notice(&format!("{}:{}: skipped: {}", fault.log, fault.line, printable(&fault.reason)));
    }
    if summary.unreadable > summary.faults.len() as u64 {
        print_notice(&format!(
            "{} lines were skipped in total",
            simulate::with_thousands_separators(summary.unreadable)
        ));
    }
    if summary.late > 0 {
        print_notice(&format!(
            "{} requests were more than {:?} out of order and were moved forward in time: use a larger --reorder",
            simulate::with_thousands_separators(summary.late),
            Duration::from(arguments.options.reorder)
        ));
    }
    for name in summary.absent_attributes.iter().filter(|_| summary.requests > 0) {
        print_notice(&format!(
            "no line has the attribute {name:?}, so rules that need it never match: see --map and --set"
        ));
    }
    for side in summary.results.iter().filter(|side| side.evicted > 0) {
        print_notice(&format!(
            "{}: {} buckets were evicted, so some requests may have been denied early: use a larger --max-buckets for an exact result",
            side.rules_file,
            simulate::with_thousands_separators(side.evicted)
        ));
    }
    if summary.moved_s > 0 {
        print_notice(&format!(
            "the log is from before 2026 and was tried {} years later: weeks begin on another day, and bans may have ended",
            summary.moved_s / (1_461 * 86_400) * 4
        ));
    }
    if summary.is_interrupted {
        print_notice("interrupted: the result covers the lines read so far");
    }
}

fn progress_bar(logs: &[PathBuf]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let sizes: Option<Vec<u64>> = logs.iter().map(|path| Some(std::fs::metadata(path).ok()?.len())).collect();
    let (bar, template) = match sizes {
        Some(sizes) => {
            (ProgressBar::new(sizes.iter().sum()), "{wide_bar} {percent}%  {msg}  {bytes_per_sec}  {eta} left")
        }
        None => (ProgressBar::no_length(), "{spinner} {msg}  {bytes}  {bytes_per_sec}  {elapsed}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
