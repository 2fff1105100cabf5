//! `checkdam doctor`: diagnoses the store and suggests remedies.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use checkdam::store::redis::{Diagnosis, Finding, Level, Role, ServerDiagnosis, diagnose};
use checkdam_service::config::StoreSettings;
use checkdam_service::nodes::{AnnouncedNode, Difference, differences_among, survey};
use serde_json::{Value, json};

use super::table::printable;
use super::{print, print_json};

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArguments {
    /// Settings file [default: checkdam.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    store: StoreSettings,

    /// Exit with 1 on warnings too
    #[arg(long)]
    strict: bool,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// From the worst to the best.
const LEVELS: [Level; 4] = [Level::Problem, Level::Warning, Level::Advice, Level::Ok];

pub(crate) fn run(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let Some(options) = arguments.store.options(arguments.config.as_deref())? else {
        return print_memory_store(arguments.json);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let mut diagnosis = runtime.block_on(diagnose(&options))?;
    if diagnosis.is_reached() {
        diagnosis.findings.extend(node_findings(&runtime.block_on(survey(&options))?));
    }
    if arguments.json {
        print_json(json(&diagnosis).to_string().as_bytes())?;
    } else {
        let is_coloured =
            std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        print(text(&diagnosis, is_coloured).as_bytes())?;
    }
    let worst = diagnosis.all().map(|finding| finding.level).max();
    Ok(match worst {
        _ if !diagnosis.is_reached() => ExitCode::from(2),
        Some(Level::Problem) => ExitCode::FAILURE,
        Some(Level::Warning) if arguments.strict => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Findings on the settings of the nodes that announce themselves on the store.
fn node_findings(announced: &[AnnouncedNode]) -> Vec<Finding> {
    const LOOK: &str = "nodes";
    let differing = differences_among(announced);
    if differing.is_empty() {
        let seen = match announced.len() {
            0 => return Vec::new(),
            1 => "1 node answers".to_owned(),
            count => format!("{count} nodes answer, with the same secret, rules and --nodes"),
        };
        return vec![Finding { look: LOOK, level: Level::Ok, seen, remedy: None }];
    }
    let finding = |Difference { seen, remedy, .. }| Finding {
        look: LOOK,
        level: Level::Warning,
        seen,
        remedy: Some(remedy.to_owned()),
    };
    differing.into_iter().map(finding).collect()
}

/// Memory needs no diagnosis.
fn print_memory_store(as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        print_json(json!({"store": "memory", "findings": [], "servers": []}).to_string().as_bytes())?;
    } else {
        let said = "The buckets live in memory: there is no server to examine.\n\
                    Name one with --store redis://host:port, CHECKDAM_STORE, or store in checkdam.toml.\n";
        print(said.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(diagnosis: &Diagnosis, is_coloured: bool) -> String {
    let mut text = format!("{}\n", printable(&diagnosis.store));
    let all = diagnosis.all();
    let width = all.map(|finding| finding.look.len()).max().unwrap_or(0);
    let mut part = |title: &str, findings: &[Finding]| {
        text.push_str(&format!("\n{}\n", printable(title)));
        for finding in findings {
            text.push_str(&finding_text(finding, width, is_coloured));
        }
    };
    if !diagnosis.findings.is_empty() {
        part("the whole store", &diagnosis.findings);
    }
    for server in &diagnosis.servers {
        part(&format!("{} {}", role(server), server.address), &server.findings);
    }
    text.push_str(&format!("\n{}\n", summary(diagnosis)));
    text
}

fn finding_text(finding: &Finding, width: usize, is_coloured: bool) -> String {
    let Finding { look, level, seen, remedy } = finding;
    let name = format!("{:<7}", level.name());
    let name = if is_coloured { format!("\x1b[{}m{name}\x1b[0m", colour(*level)) } else { name };
    let mut lines = format!("  {name}  {look:<width$}  {}\n", printable(seen));
    if let Some(remedy) = remedy {
        lines.push_str(&format!("  {:7}  {:width$}  -> {}\n", "", "", printable(remedy)));
    }
    lines
}

fn summary(diagnosis: &Diagnosis) -> String {
    let count = |level| diagnosis.all().filter(|finding| finding.level == level).count();
    let counts = LEVELS.map(|level| match (count(level), level) {
        (1, Level::Problem | Level::Warning) => format!("1 {}", level.name()),
        (count, Level::Problem | Level::Warning) => format!("{count} {}s", level.name()),
        (count, _) => format!("{count} {}", level.name()),
    });
    let verdict = if !diagnosis.is_reached() {
        "the store cannot be used"
    } else if count(Level::Problem) > 0 {
        "limits will not work as they should"
    } else if count(Level::Warning) > 0 {
        "limits work; read the warnings"
    } else {
        "all is well"
    };
    format!("{}: {verdict}", counts.join(", "))
}

const fn colour(level: Level) -> u8 {
    match level {
        Level::Ok => 32,
        Level::Advice => 36,
        Level::Warning => 33,
        Level::Problem => 31,
    }
}

fn role(server: &ServerDiagnosis) -> &'static str {
    match server.role {
        Role::Server => "server",
        Role::Sentinel => "sentinel",
    }
}

fn json(diagnosis: &Diagnosis) -> Value {
    let finding = |finding: &Finding| {
        let Finding { look, level, seen, remedy } = finding;
        json!({"look": look, "level": level.name(), "seen": seen, "remedy": remedy})
    };
    let findings = |all: &[Finding]| all.iter().map(finding).collect::<Vec<_>>();
    let server = |server: &ServerDiagnosis| {
        json!({
            "address": server.address,
            "role": role(server),
            "reached": server.is_reached,
            "findings": findings(&server.findings),
        })
    };
    json!({
        "store": diagnosis.store,
        "findings": findings(&diagnosis.findings),
        "servers": diagnosis.servers.iter().map(server).collect::<Vec<_>>(),
    })
}
