//! `checkdam rules import` and `export`.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use checkdam::Definitions;
use checkdam::rule_file::{self, FileOptions, RuleFileError};
use checkdam_service::config::RuleFileArguments;
use checkdam_service::rulebook::{FileTexts, flatten_trees, unsupported_trees_error};
use serde::Deserialize;

use crate::cli::backend::{BackendArguments, ImportRequest};
use crate::cli::command_error::CommandError;
use crate::cli::{print, print_notice, print_response};

/// The largest file that is taken over, in bytes.
const IMPORT_MAX: usize = 64 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArguments {
    /// Rule file, checkdam's or envoyproxy/ratelimit's format, YAML or JSON; a folder of rule files; or - for
    /// standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Remove rules, overrides and bans that the file does not contain
    #[arg(long)]
    replace: bool,

    /// Report what would change without changing it
    #[arg(long)]
    dry_run: bool,

    /// Skip descriptor limits that cannot be expressed as rules
    #[arg(long)]
    partly: bool,

    #[command(flatten)]
    files: RuleFileArguments,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArguments {
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Deserialize)]
struct ImportResult {
    added: usize,
    changed: usize,
    removed: usize,
    unchanged: usize,
}

pub(crate) fn import(arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let ImportArguments { file, replace, dry_run, partly, files, place: where_to, json } = arguments;
    let (shown, text, definitions) = read(file, &files.options())?;
    let (text, definitions) = match text {
        Some(text) if definitions.trees.is_empty() => (text, definitions),
        _ => {
            let definitions = flatten_or_refuse(&shown, definitions, *partly)?;
            (rule_file::write(&definitions), definitions)
        }
    };
    if std::io::stderr().is_terminal() {
        let (rules, overrides, bans) = (definitions.rules.len(), definitions.overrides.len(), definitions.bans.len());
        print_notice(&format!("{shown}: {rules} rules, {overrides} overrides and {bans} bans are being imported …"));
    }
    // A dry run creates no database file.
    let backend = where_to.open(!dry_run)?;
    let answer = backend.import(ImportRequest { text, definitions, replace: *replace, dry_run: *dry_run })?;
    let printed = print_response(&answer, *json, |ImportResult { added, changed, removed, unchanged }| {
        Ok(if *dry_run {
            format!("would add {added}, change {changed}, remove {removed}, leave {unchanged} as they are\n")
        } else {
            format!("added {added}, changed {changed}, removed {removed}, left {unchanged} as they were\n")
        })
    })?;
    if !dry_run {
        print_notice(&backend.activation_notice());
    }
    Ok(printed)
}

/// What a file says, or a folder of them; a folder has no text of its own.
fn read(path: &Path, options: &FileOptions) -> anyhow::Result<(String, Option<String>, Definitions)> {
    if path.is_dir() {
        let read = FileTexts::read(path).and_then(|texts| texts.load(options));
        let (_, definitions) = read.map_err(|error| CommandError::invalid(error.to_string()))?;
        return Ok((path.display().to_string(), None, definitions));
    }
    let TextInput { shown, text } = TextInput::read(path, IMPORT_MAX)?;
    let options = FileOptions { bytes_max: IMPORT_MAX, ..*options };
    let definitions = rule_file::parse_with(&text, &options)
        .map_err(|error| CommandError::invalid(error_location(&shown, &error)))?;
    Ok((shown, Some(text), definitions))
}

/// Descriptors as rules; reports what is left out.
fn flatten_or_refuse(shown: &str, definitions: Definitions, partly: bool) -> Result<Definitions, CommandError> {
    let (definitions, left_out) = flatten_trees(definitions);
    if !left_out.is_empty() && !partly {
        let remedy = "import the rest with --partly, or serve the file itself with --rules";
        return Err(CommandError::invalid(format!("{shown}: {}", unsupported_trees_error(&left_out, remedy))));
    }
    for text in &left_out {
        print_notice(&format!("{shown}: skipped {text}"));
    }
    Ok(definitions)
}

pub(crate) fn export(arguments: &ExportArguments) -> anyhow::Result<ExitCode> {
    let text = arguments.place.backend()?.export()?;
    match &arguments.output {
        None => print(text.as_bytes())?,
        Some(path) => {
            std::fs::write(path, &text).with_context(|| format!("{}: cannot be written", path.display()))?;
            print_notice(&format!("written to {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Text of a file or of standard input.
pub(super) struct TextInput {
    /// Its source, for messages.
    pub(super) shown: String,
    pub(super) text: String,
}

impl TextInput {
    /// Reads a file, or standard input if the path is `-`. Longer input is truncated just
    /// after `bytes_max`, so that the parser rejects it.
    pub(super) fn read(path: &Path, bytes_max: usize) -> anyhow::Result<Self> {
        let mut text = String::new();
        let most = bytes_max as u64 + 1;
        if path == Path::new("-") {
            let read = std::io::stdin().take(most).read_to_string(&mut text);
            read.context("standard input cannot be read")?;
            return Ok(Self { shown: "standard input".to_owned(), text });
        }
        let shown = path.display().to_string();
        let read = std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text));
        read.with_context(|| format!("{shown}: cannot be read"))?;
        Ok(Self { shown, text })
    }
}

/// A fault in the form that editors understand.
pub(super) fn error_location(shown: &str, error: &RuleFileError) -> String {
    format!("{shown}:{}:{}: {}", error.line, error.column, error.reason)
}
