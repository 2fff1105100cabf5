//! Reads text from a file or from standard input.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use checkdam::rule_file::RuleFileError;

/// What was read.
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
