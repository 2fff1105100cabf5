//! 1,000 nodes on one leased limit, in virtual time: how much of the limit is
//! used, who gets it, what it costs in calls, and whether too much ever passed.
//!
//! Nodes run the library's own accounts and the bucket its own arithmetic; only
//! the network and the demand are made up, from a seed. Nothing here is timed.
//!
//! `thousand_nodes [--seed N] [--seconds N] [--nodes N] [--markdown]`

#[path = "thousand_nodes/oracle.rs"]
mod oracle;
#[path = "thousand_nodes/report.rs"]
mod report;
#[path = "thousand_nodes/scenario.rs"]
mod scenario;
#[path = "thousand_nodes/world.rs"]
mod world;

use std::process::ExitCode;

use scenario::Scenario;
use world::World;

/// What is to be simulated.
struct Options {
    seed: u64,
    seconds: u64,
    nodes: usize,
    is_markdown: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\nusage: thousand_nodes [--seed N] [--seconds N] [--nodes N] [--markdown]");
            return ExitCode::from(2);
        }
    };
    let mut reports = Vec::new();
    for scenario in Scenario::all() {
        eprintln!("{}: {} nodes, {} s of virtual time …", scenario.name, options.nodes, options.seconds);
        let mut world = World::new(&scenario, options.nodes, options.seed);
        world.run(options.seconds * 1_000_000);
        reports.push(world.report(scenario.name));
    }
    print!("{}", report::table(&reports, options.seconds as f64, options.is_markdown));
    let over: u64 = reports.iter().map(|report| report.over).sum();
    if over > 0 {
        eprintln!("{over} admissions too many");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seed: 7, seconds: 4, nodes: 1_000, is_markdown: false };
    while let Some(word) = words.next() {
        let mut number = |most: u64| {
            let text = words.next().unwrap_or_default();
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("{word} takes a number from 1 to {most}, not {text:?}"))
        };
        match word.as_str() {
            "--seed" => options.seed = number(u64::MAX)?,
            "--seconds" => options.seconds = number(600)?,
            "--nodes" => options.nodes = number(100_000)? as usize,
            "--markdown" => options.is_markdown = true,
            _ => return Err(format!("unknown option {word:?}")),
        }
    }
    Ok(options)
}
