//! `checkdam man`: generates manual pages, one for each command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, print, print_notice};

#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// Folder for the pages [default: print the main page]
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ManArguments) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = &arguments.folder else {
        print(&render_page(command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let count = write_pages(command, folder)?;
    print_notice(&format!("wrote {count} pages to {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its own commands; how many.
fn write_pages(command: Command, folder: &Path) -> anyhow::Result<usize> {
    let mut count = 1;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        count += write_pages(inner.clone(), folder)?;
    }
    // Once built, a command's name for people has those before it: checkdam-rules-check.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, render_page(command)?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(count)
}

fn render_page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).manual("checkdam").render(&mut page)?;
    Ok(page)
}
