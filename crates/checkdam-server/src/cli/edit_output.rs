//! Prints the result of an edit, as text or JSON.

use std::process::ExitCode;

use serde_json::Value;

use super::backend::Backend;
use super::table::printable;
use super::{print, print_notice, print_value};

/// An edit that was done.
pub(super) struct EditOutput {
    /// What was done.
    pub(super) what: String,
    /// What is kept now, if anything.
    pub(super) row: Option<Value>,
    /// Whether that is printed as JSON.
    pub(super) is_json: bool,
}

impl EditOutput {
    /// Prints it, and says when it counts.
    pub(super) fn print(&self, backend: &dyn Backend) -> anyhow::Result<ExitCode> {
        match &self.row {
            Some(row) if self.is_json => print_value(row)?,
            _ => print(format!("{}\n", printable(&self.what)).as_bytes())?,
        }
        print_notice(&backend.activation_notice());
        Ok(ExitCode::SUCCESS)
    }
}
