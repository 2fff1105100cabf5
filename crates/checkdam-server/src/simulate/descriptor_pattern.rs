//! Derives Envoy descriptors from the attributes of a log line.

use std::borrow::Cow;
use std::str::FromStr;

use checkdam::{KeyPattern, Request};

/// A descriptor: names, and where each takes its value from.
#[derive(Debug, Clone)]
pub(crate) struct DescriptorPattern {
    entries: Vec<(String, KeyPattern)>,
}

impl FromStr for DescriptorPattern {
    type Err = String;

    /// Reads `remote_address={ip},path={endpoint}`, or values as they are.
    fn from_str(text: &str) -> Result<Self, String> {
        let entry = |part: &str| {
            let example = "write names and values, such as remote_address={ip},path={endpoint}";
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no entry: {example}"))?;
            if name.trim().is_empty() {
                return Err(format!("{part:?} has no name: {example}"));
            }
            let value = value.trim().parse::<KeyPattern>().map_err(|error| error.to_string())?;
            Ok((name.trim().to_owned(), value))
        };
        Ok(Self { entries: text.split(',').map(entry).collect::<Result<_, String>>()? })
    }
}

impl DescriptorPattern {
    /// The attributes that it needs.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flat_map(|(_, value)| value.attributes())
    }

    /// The descriptor of a request; none if an attribute is not there, as Envoy
    /// sends none then.
    pub(super) fn descriptor_for<'a>(&'a self, domain: &'a str, request: &Request<'_>) -> Option<Request<'a>> {
        if !self.attributes().all(|name| request.get(name).is_some()) {
            return None;
        }
        let entries =
            self.entries.iter().map(|(name, value)| (name.as_str(), Cow::<str>::Owned(value.render(request))));
        let made = Request::from_entries(domain, entries).ok()?;
        Some(made.costing(request.cost()))
    }
}
