//! Checks the server's product and version against known advisories.

use std::fmt;

use super::Finding;
use super::advisories::weaknesses;
use super::server_info::{ServerInfo, not_visible};

/// The servers that the store is tested on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Redis,
    Valkey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) patch: u32,
}

/// The script's commands need these.
const REDIS_OLDEST: Version = Version { major: 7, minor: 0, patch: 0 };
const VALKEY_OLDEST: Version = Version { major: 7, minor: 2, patch: 0 };

impl Version {
    /// The suffix after the third number, such as `-rc1`, is ignored.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let mut next = || {
            let part = parts.next()?;
            part.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
        };
        Some(Self { major: next()?, minor: next()?, patch: next()? })
    }

    /// Major and minor number: what gets fixes together.
    pub(super) const fn line(self) -> (u32, u32) {
        (self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// The release, and its known vulnerabilities.
pub(super) fn version(info: &ServerInfo) -> Vec<Finding> {
    // Valkey also names the Redis that it is compatible with.
    let named = match (info.info("valkey_version"), info.info("redis_version")) {
        (Some(version), _) => Some(("valkey", version)),
        (None, Some(version)) => Some((info.info("server_name").unwrap_or("redis"), version)),
        (None, None) => info.hello("server").zip(info.hello("version")),
    };
    let Some((name, text)) = named else {
        return vec![not_visible("version", "+info", "Redis 7.0, Valkey 7.2 or later")];
    };
    let engine = match name {
        "redis" => Engine::Redis,
        "valkey" => Engine::Valkey,
        _ => {
            let remedy = "expect surprises, or use Redis or Valkey: checkdam is tested on these";
            return vec![Finding::warning("version", format!("{name} {text}, which is not tested"), remedy)];
        }
    };
    let Some(version) = Version::parse(text) else {
        return vec![Finding::advice("version", format!("{engine} {text}"), "use a release: its fixes are known")];
    };
    let oldest = if engine == Engine::Redis { REDIS_OLDEST } else { VALKEY_OLDEST };
    let first = if version < oldest {
        let remedy = format!("update: {engine} {}.{} is the oldest that works", oldest.major, oldest.minor);
        Finding::problem("version", format!("{engine} {version} is too old"), remedy)
    } else {
        Finding::ok("version", format!("{engine} {version}"))
    };
    vec![first, security(engine, version)]
}

fn security(engine: Engine, version: Version) -> Finding {
    let (names, fixed) = weaknesses(engine, version);
    if names.is_empty() {
        return Finding::ok("security", "no weakness known to this checkdam");
    }
    let update = fixed.map_or_else(|| "update".to_owned(), |fixed| format!("update to {engine} {fixed} or later"));
    let remedy = format!(
        "{update}; a distribution's package may have the fixes under the old number, so read its changelog; \
         let nobody but checkdam run scripts here"
    );
    Finding::warning("security", format!("{version} as released has {}", names.join(", ")), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::diagnose::Level;

    fn info(lines: &[(&str, &str)]) -> ServerInfo {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        ServerInfo { info: Some(lines.iter().map(own).collect()), ..ServerInfo::default() }
    }

    #[test]
    fn servers_are_told_apart() {
        for (lines, seen, level) in [
            (&[("redis_version", "8.10.1")][..], "Redis 8.10.1", Level::Ok),
            (&[("redis_version", "7.2.4"), ("valkey_version", "9.1.2")], "Valkey 9.1.2", Level::Ok),
            (&[("redis_version", "6.2.22")], "Redis 6.2.22 is too old", Level::Problem),
            (&[("redis_version", "8.0-int")], "Redis 8.0-int", Level::Advice),
            (&[("redis_version", "8.0.0-rc1")], "Redis 8.0.0", Level::Ok),
            (
                &[("redis_version", "7.2.0"), ("server_name", "other")],
                "other 7.2.0, which is not tested",
                Level::Warning,
            ),
            (&[], "not visible to this login", Level::Advice),
        ] {
            let found = version(&info(lines));
            assert_eq!((found[0].seen.as_str(), found[0].level), (seen, level));
        }
    }
}
