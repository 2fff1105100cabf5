//! Security advisories for Redis and Valkey, as published until November 2026, with
//! the first fixed release of every line.
//!
//! It lists only advisories that affect this use: weaknesses of the Lua engine, and
//! those that crash or compromise the server without a command of a client.

use super::version::{Engine, Version};

/// Weaknesses that were fixed by the same releases.
struct Advisory {
    names: &'static [&'static str],
    /// The first release that has the weakness.
    since: Version,
    redis: &'static [Version],
    valkey: &'static [Version],
}

const fn v(major: u32, minor: u32, patch: u32) -> Version {
    Version { major, minor, patch }
}

/// Lines that are missing from a row had ended when it was published and have
/// no fixed release, or began afterwards and have always been fixed.
const ADVISORIES: &[Advisory] = &[
    Advisory {
        names: &["CVE-2024-31449"],
        since: v(2, 6, 0),
        redis: &[v(6, 2, 16), v(7, 2, 6), v(7, 4, 1)],
        valkey: &[v(7, 2, 7), v(8, 0, 1)],
    },
    Advisory {
        names: &["CVE-2024-46981"],
        since: v(2, 6, 0),
        redis: &[v(6, 2, 17), v(7, 2, 7), v(7, 4, 2)],
        valkey: &[v(7, 2, 8), v(8, 0, 2)],
    },
    Advisory {
        names: &["CVE-2025-21605"],
        since: v(2, 6, 0),
        redis: &[v(6, 2, 18), v(7, 2, 8), v(7, 4, 3)],
        valkey: &[v(7, 2, 9), v(8, 0, 3), v(8, 1, 1)],
    },
    Advisory {
        names: &["CVE-2025-48367"],
        since: v(2, 6, 0),
        redis: &[v(6, 2, 19), v(7, 2, 10), v(7, 4, 5), v(8, 0, 3)],
        valkey: &[v(7, 2, 10), v(8, 0, 4), v(8, 1, 3)],
    },
    Advisory {
        names: &["CVE-2025-49844", "CVE-2025-46817", "CVE-2025-46818", "CVE-2025-46819"],
        since: v(2, 6, 0),
        redis: &[v(6, 2, 20), v(7, 2, 11), v(7, 4, 6), v(8, 0, 4), v(8, 2, 2)],
        valkey: &[v(7, 2, 11), v(8, 0, 6), v(8, 1, 4)],
    },
    // The records name 9.0.2; the release notes list the fixes under 9.0.3.
    Advisory {
        names: &["CVE-2025-67733", "CVE-2026-21863"],
        since: v(7, 2, 0),
        redis: &[],
        valkey: &[v(7, 2, 12), v(8, 0, 7), v(8, 1, 6), v(9, 0, 3)],
    },
    Advisory {
        names: &["CVE-2026-23631"],
        since: v(7, 0, 0),
        redis: &[v(7, 2, 14), v(7, 4, 9), v(8, 2, 6), v(8, 4, 3), v(8, 6, 3)],
        valkey: &[v(7, 2, 13), v(8, 0, 8), v(8, 1, 7), v(9, 0, 4)],
    },
    Advisory {
        names: &["CVE-2026-81934 (if it serves TLS)"],
        since: v(8, 2, 0),
        redis: &[v(8, 2, 9), v(8, 4, 6), v(8, 6, 6), v(8, 8, 2), v(8, 10, 1)],
        valkey: &[],
    },
    Advisory {
        names: &["CVE-2026-56684 (if it serves TLS)"],
        since: v(8, 0, 0),
        redis: &[],
        valkey: &[v(8, 0, 10), v(8, 1, 9), v(9, 0, 5), v(9, 1, 1)],
    },
];

/// The weaknesses of a release, and the nearest release that has none of them.
pub(super) fn weaknesses(engine: Engine, version: Version) -> (Vec<&'static str>, Option<Version>) {
    let fixes = |advisory: &Advisory| match engine {
        Engine::Redis => advisory.redis,
        Engine::Valkey => advisory.valkey,
    };
    let open: Vec<&Advisory> =
        ADVISORIES.iter().filter(|it| version >= it.since && !is_fixed(version, fixes(it))).collect();
    let mut releases: Vec<Version> = ADVISORIES.iter().flat_map(|it| fixes(it).iter().copied()).collect();
    releases.sort_unstable();
    let is_clean = |release: &Version| {
        *release >= version && ADVISORIES.iter().all(|it| *release < it.since || is_fixed(*release, fixes(it)))
    };
    let names = open.iter().flat_map(|it| it.names.iter().copied()).collect();
    (names, releases.into_iter().find(is_clean))
}

/// Whether a release is at or after the fix of its line, or of a line that
/// began after the last one that needed it.
fn is_fixed(version: Version, fixes: &[Version]) -> bool {
    match fixes.iter().find(|fix| fix.line() == version.line()) {
        Some(fix) => version >= *fix,
        None => fixes.iter().all(|fix| version > *fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_from_their_fixes() {
        let names = |engine, version| weaknesses(engine, version).0;
        let fix = |engine, version| weaknesses(engine, version).1;
        let debian = names(Engine::Redis, v(7, 0, 15));
        for name in ["CVE-2024-31449", "CVE-2024-46981", "CVE-2025-21605", "CVE-2025-49844", "CVE-2026-23631"] {
            assert!(debian.contains(&name), "{name} is missing in {debian:?}");
        }
        assert_eq!(fix(Engine::Redis, v(7, 0, 15)), Some(v(7, 2, 14)), "7.0 has no fixed release");
        assert_eq!(names(Engine::Redis, v(7, 4, 5))[0], "CVE-2025-49844");
        assert!(!names(Engine::Redis, v(7, 4, 6)).contains(&"CVE-2025-49844"));
        assert_eq!(fix(Engine::Redis, v(7, 4, 6)), Some(v(7, 4, 9)));
        assert_eq!(names(Engine::Redis, v(7, 4, 9)), [""; 0]);
        assert_eq!(names(Engine::Redis, v(8, 10, 1)), [""; 0]);
        assert_eq!(names(Engine::Redis, v(8, 12, 0)), [""; 0], "later lines have always been fixed");
        assert_eq!(names(Engine::Redis, v(8, 0, 6)), ["CVE-2026-23631"], "8.0 had ended");
        assert_eq!(names(Engine::Valkey, v(9, 1, 2)), [""; 0]);
        assert_eq!(names(Engine::Valkey, v(9, 0, 4)), ["CVE-2026-56684 (if it serves TLS)"]);
        assert_eq!(fix(Engine::Valkey, v(8, 1, 3)), Some(v(8, 1, 9)));
    }
}
