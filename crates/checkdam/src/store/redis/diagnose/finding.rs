//! A finding: plain data with a readable message.

/// How much a finding matters; what matters more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works; this would be better, or could not be seen.
    Advice,
    /// It works, and may fail or let too many pass one day.
    Warning,
    /// Limits do not work as they should, or not at all.
    Problem,
}

impl Level {
    /// The level as a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check, in a word or two.
    pub look: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// What to do; there is something unless all is well.
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(look: &'static str, seen: impl Into<String>) -> Self {
        Self { look, level: Level::Ok, seen: seen.into(), remedy: None }
    }

    pub(super) fn advice(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Advice, seen.into(), remedy.into())
    }

    pub(super) fn warning(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Warning, seen.into(), remedy.into())
    }

    pub(super) fn problem(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Problem, seen.into(), remedy.into())
    }

    fn new(look: &'static str, level: Level, seen: String, remedy: String) -> Self {
        Self { look, level, seen, remedy: Some(remedy) }
    }
}
