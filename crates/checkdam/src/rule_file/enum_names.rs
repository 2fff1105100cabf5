//! Names of enum values in rule files.

use crate::decision::FailurePolicy;
use crate::rule::Mode;

pub(super) const MODES: [(&str, Mode); 3] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];

pub(super) const POLICIES: [(&str, FailurePolicy); 3] =
    [("open", FailurePolicy::Open), ("closed", FailurePolicy::Closed), ("local", FailurePolicy::Local)];

/// The word for a choice, unless it is the usual one.
pub(super) fn non_default<T: Copy + Default + PartialEq>(
    choice: T,
    words: &[(&'static str, T)],
) -> Option<&'static str> {
    let (word, _) = words.iter().find(|(_, known)| *known == choice)?;
    Some(*word).filter(|_| choice != T::default())
}
