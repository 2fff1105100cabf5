//! Validates the keys of descriptor files by their position. A known key at a
//! position where it has no effect is a warning, not an error, because such files
//! have always been accepted.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use serde_saphyr::{Location, Spanned};

use super::super::{FileOptions, RuleFileError, from_yaml_with, options_with_anchors};

const TREE: &[&str] = &["domain", "descriptors", "default_algorithm"];
const DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const LIMIT: &[&str] = &[
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "metadata",
    "algorithm",
    "burst",
    "unit_multiplier",
    "on_store_failure",
];
const REPLACES: &[&str] = &["name"];
const ALL: [&[&str]; 4] = [TREE, DESCRIPTOR, LIMIT, REPLACES];

/// Rejects unknown keys; returns warnings for keys that have no effect where they
/// are.
pub(super) fn check(text: &str, options: &FileOptions) -> Result<Vec<String>, RuleFileError> {
    let KeyReport { warnings, fault } =
        from_yaml_with(text, options.bytes_max, "the file", options_with_anchors(options))?;
    match fault {
        Some((place, reason)) => Err(RuleFileError::at(place, reason)),
        None => Ok(warnings),
    }
}

/// The keys of the outermost map; none if there is none.
pub(super) fn top_level(text: &str) -> HashMap<String, IgnoredAny> {
    let options = FileOptions { bytes_max: text.len(), ..FileOptions::default() };
    from_yaml_with(text, text.len(), "", options_with_anchors(&options)).unwrap_or_default()
}

#[derive(Default)]
struct KeyReport {
    warnings: Vec<String>,
    /// The first key or value that is invalid where it is.
    fault: Option<(Location, String)>,
}

impl<'de> de::Deserialize<'de> for KeyReport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let checked = RefCell::default();
        let keys = KeyChecker { known: TREE, place: Location::UNKNOWN, must_be_map: true, checked: &checked };
        keys.deserialize(deserializer)?;
        Ok(checked.into_inner())
    }
}

/// Visits a value of any type and checks its keys.
#[derive(Clone, Copy)]
struct KeyChecker<'a> {
    known: &'static [&'static str],
    /// The location of the key that has this value.
    place: Location,
    must_be_map: bool,
    checked: &'a RefCell<KeyReport>,
}

impl KeyChecker<'_> {
    fn below(self, key: &Spanned<String>) -> Self {
        let known = match key.value.as_str() {
            "descriptors" => DESCRIPTOR,
            "rate_limit" => LIMIT,
            "replaces" => REPLACES,
            _ => &[],
        };
        Self { known, place: key.referenced, must_be_map: false, ..self }
    }

    fn check_key(self, key: &Spanned<String>) {
        let name = key.value.as_str();
        if !ALL.iter().any(|keys| keys.contains(&name)) {
            let shown: String = name.chars().take(64).collect();
            let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
            self.fault(key.referenced, format!("the key {shown:?} is not known here: use one of {known}"));
        } else if !self.known.contains(&name) {
            let owners = ALL.iter().zip(["the file", "a descriptor", "rate_limit", "replaces"]);
            let owner = owners.filter(|(keys, _)| keys.contains(&name)).map(|(_, owner)| owner).next();
            let (line, owner) = (key.referenced.line(), owner.unwrap_or_default());
            let warning = format!("line {line}: {name:?} means nothing where it stands: it belongs to {owner}");
            self.checked.borrow_mut().warnings.push(warning);
        }
    }

    fn fault(self, place: Location, reason: String) {
        self.checked.borrow_mut().fault.get_or_insert((place, reason));
    }

    /// Anything but a map or a list.
    fn scalar<E>(self) -> Result<(), E> {
        if self.must_be_map {
            self.fault(self.place, "a list holds something that is no map of keys and values".to_owned());
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for KeyChecker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyChecker<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map of keys and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            self.check_key(&key);
            if key.value == "metadata" {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(self.below(&key))?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.scalar::<A::Error>()?;
        while list.next_element_seed(KeyChecker { must_be_map: true, ..self })?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.scalar()
    }
}
