//! Everything that is promised about speed, measured in one run: see `bench/run --help`.
#![allow(clippy::print_stderr, reason = "talk, not data")]
#![allow(clippy::print_stdout, reason = "data")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::figures::Figures;
use bench::report::Head;
use bench::session::{Pace, Session};
use bench::suites::{ALL, Suite, print_bytes};
use bench::{bare, chart, machine, report};

/// Cores that others may keep busy, of each core there is.
const BUSY_SHARE_MAX: f64 = 0.15;

/// What was asked for.
#[derive(Default)]
struct Order {
    is_quick: bool,
    may_be_busy: bool,
    suites: Vec<&'static Suite>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // What this program asks of itself, in processes of their own.
    match arguments.split_first() {
        Some((first, rest)) if first == "serve" => bare::serve(rest),
        Some((first, rest)) if first == "bytes-of" => print_bytes(rest.first().map_or("", String::as_str)),
        Some((first, _)) if first == "--list" => {
            ALL.iter().for_each(|suite| println!("{:<10} {}", suite.name, suite.about))
        }
        _ => return measure(&arguments),
    }
    ExitCode::SUCCESS
}

fn measure(arguments: &[String]) -> ExitCode {
    let wanted = order(arguments).and_then(|order| Ok((Pace::new(order.is_quick)?, order)));
    let (pace, order) = match wanted {
        Ok(wanted) => wanted,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let (load, busy) = (machine::load_average(), machine::busy_cores(Duration::from_secs(2)));
    let mut doubts = Vec::new();
    if busy > BUSY_SHARE_MAX * machine::cores().len() as f64 {
        let doubt = format!("Others kept {busy:.1} of {} cores busy before the first round", machine::cores().len());
        if !order.may_be_busy {
            eprintln!("{doubt}: what is measured now says little. Wait, or measure all the same with --busy.");
            return ExitCode::from(2);
        }
        doubts.push(format!("{doubt}: these figures say little."));
    }
    let mut session = Session::new(pace);
    run_all(&mut session, &order.suites);
    let words = if arguments.is_empty() { String::new() } else { format!(" {}", arguments.join(" ")) };
    let mut machine = machine::description();
    let before = std::env::var("BENCH_LOAD").unwrap_or_else(|_| format!("{load:.2}"));
    machine.push(("Load", format!("average of the minute before {before}; {busy:.2} cores busy just before")));
    let date = today();
    let name = free_name(&file_name(&date, &order));
    let head = Head { date, command: format!("bench/run{words}"), machine, doubts, chart: format!("{name}.svg") };
    finish(&session, &head, &name)
}

fn order(arguments: &[String]) -> Result<Order, String> {
    let mut order = Order::default();
    for argument in arguments {
        match argument.as_str() {
            "--quick" => order.is_quick = true,
            "--busy" => order.may_be_busy = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}: see bench/run --help")),
            name => {
                let names: Vec<&str> = ALL.iter().map(|suite| suite.name).collect();
                let found = ALL.iter().find(|suite| suite.name == name);
                order
                    .suites
                    .push(found.ok_or_else(|| format!("there is no suite {name}: choose of {}", names.join(", ")))?);
            }
        }
    }
    if order.suites.is_empty() {
        order.suites = ALL.iter().collect();
    }
    Ok(order)
}

/// Each suite on a thread of its own, so that none leaves another pinned.
fn run_all(session: &mut Session, suites: &[&Suite]) {
    let all: f64 = suites.iter().map(|suite| suite.share).sum();
    let mut before = 0.0;
    for (place, suite) in suites.iter().enumerate() {
        session.begin(suite.name, (place + 1, suites.len()), (before, all - before));
        let outcome = std::thread::scope(|scope| scope.spawn(|| (suite.run)(session)).join());
        if outcome.is_err() {
            eprintln!("\nthe suite {} ended early; nothing is written", suite.name);
            std::process::exit(2);
        }
        before += suite.share;
    }
}

fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    checkdam::time::rfc3339(seconds).chars().take(10).collect()
}

fn file_name(date: &str, order: &Order) -> String {
    let mut name = date.to_owned();
    if order.is_quick {
        name.push_str("-quick");
    }
    if order.suites.len() < ALL.len() {
        for suite in &order.suites {
            name.push('-');
            name.push_str(suite.name);
        }
    }
    name
}

/// Results are kept: a second run of a day has a name of its own.
fn free_name(name: &str) -> String {
    let is_free = |name: &String| !results().join(format!("{name}.md")).exists();
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    names.into_iter().find(is_free).unwrap_or_else(|| name.to_owned())
}

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

fn finish(session: &Session, head: &Head, name: &str) -> ExitCode {
    let folder = results();
    let curves: Vec<&Figures> = session.figures().iter().map(|(_, figures)| figures).filter(|it| it.is_curve).collect();
    let files = [
        (format!("{name}.md"), report::markdown(head, session)),
        (format!("{name}.svg"), chart::svg(&head.date, session.verdicts(), &curves)),
    ];
    for (file, content) in files {
        let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(&file), content));
        if let Err(error) = written {
            eprintln!("cannot write bench/results/{file}: {error}");
            return ExitCode::from(2);
        }
        session.say(&format!("written: bench/results/{file}"));
    }
    for verdict in session.verdicts() {
        let judgement = if verdict.is_met() { "met    " } else { "NOT MET" };
        let ratio = bench::figures::shown(verdict.ratio.median);
        println!("{judgement}  {ratio:>8}  {:<8}  {}", report::target(verdict.bound), verdict.what);
    }
    ExitCode::from(u8::from(!session.verdicts().iter().all(bench::figures::Verdict::is_met)))
}
