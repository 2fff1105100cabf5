//! Settings of how rule files are parsed.

use checkdam::Algorithm;
use checkdam::rule_file::FileOptions;
use serde::Deserialize;

/// Flags for parsing rule files, for commands that need no server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RuleFileArguments {
    /// Default algorithm for descriptor limits [default: fixed_window]
    #[arg(long, env = "CHECKDAM_DEFAULT_ALGORITHM", value_name = "ALGORITHM", value_parser = algorithm)]
    default_algorithm: Option<Algorithm>,

    /// Allow several files to define descriptors of the same domain
    #[arg(long, env = "CHECKDAM_MERGE_DOMAINS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    merge_domains: Option<bool>,
}

impl RuleFileArguments {
    pub fn options(&self) -> FileOptions {
        options(self.default_algorithm, self.merge_domains)
    }
}

pub(super) fn options(algorithm: Option<Algorithm>, merge_domains: Option<bool>) -> FileOptions {
    let usual = FileOptions::default();
    FileOptions {
        descriptor_algorithm: algorithm.unwrap_or(usual.descriptor_algorithm),
        merge_domains: merge_domains.unwrap_or(usual.merge_domains),
        ..usual
    }
}

pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::by_name(name).ok_or_else(|| {
        let mut names = Algorithm::ALL.map(Algorithm::name).to_vec();
        names.dedup();
        format!("use one of {}", names.join(", "))
    })
}

pub(super) fn read_algorithm<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Algorithm>, D::Error> {
    let name = String::deserialize(from)?;
    algorithm(&name).map(Some).map_err(|error| serde::de::Error::custom(format!("{name:?} is no algorithm: {error}")))
}
