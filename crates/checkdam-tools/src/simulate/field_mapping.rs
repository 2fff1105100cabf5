//! Maps fields of logs to attributes of requests, and those to the descriptors that
//! Envoy would send.

use std::borrow::Cow;
use std::net::IpAddr;
use std::str::FromStr;

use checkdam::normalize::{PathNormalization, Slashes, client_address, host};
use checkdam::{KeyPattern, Request};
use checkdam_service::client_identity::RequestTarget;

/// Other names under which logs commonly have an attribute.
const ALIASES: [(&str, &[&str]); 7] = [
    ("ip", &["remote_addr", "client_ip", "clientip", "remote_ip", "remote_address", "ip_address"]),
    ("remote_address", &["ip", "remote_addr", "client_ip", "clientip", "remote_ip"]),
    ("user", &["remote_user", "user_id", "userid", "username"]),
    ("method", &["request_method", "http_method", "verb"]),
    ("endpoint", &["path", "uri", "request_uri", "url", "request_path"]),
    ("host", &["http_host", "server_name", "vhost"]),
    ("api_key", &["apikey", "x_api_key"]),
];
/// Names under which logs commonly have the time.
pub(super) const TIMES: [&str; 9] =
    ["time", "timestamp", "ts", "@timestamp", "time_iso8601", "time_local", "msec", "datetime", "date"];

#[derive(Debug, Clone, Default)]
pub(super) struct FieldMapping {
    pub(super) attributes: Vec<MappedAttribute>,
    /// The field with the time; by its usual names if not given.
    pub(super) time_field: Option<String>,
    /// The field with the cost; 1 if not given.
    pub(super) cost_field: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct MappedAttribute {
    pub(super) name: String,
    /// The field that it is taken from, if that was said.
    field: Option<String>,
    /// What it is where the log does not say it.
    fixed: Option<String>,
    form: ValueNormalization,
}

/// In which form a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueNormalization {
    Plain,
    Address,
    Path,
    Host,
}

/// Parses `ATTR=VALUE` of the command line.
pub fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write a name, an equals sign and a value, such as user=42".to_owned()),
    }
}

impl FieldMapping {
    pub(super) fn new(
        names: impl IntoIterator<Item = String>,
        map: &[(String, String)],
        set: &[(String, String)],
    ) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let given = |pairs: &[(String, String)], name: &str| {
            pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        let attribute = |name: String| {
            let (field, fixed) = (given(map, &name), given(set, &name));
            let form = ValueNormalization::for_attribute(&name)
                .or_else(|| ValueNormalization::for_attribute(field.as_deref()?))
                .unwrap_or(ValueNormalization::Plain);
            MappedAttribute { name, field, fixed, form }
        };
        Self { attributes: names.into_iter().map(attribute).collect(), ..Self::default() }
    }

    pub(super) fn name(&self, number: u16) -> &str {
        &self.attributes[usize::from(number)].name
    }
}

impl MappedAttribute {
    /// The names of fields it may be taken from, best first.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let usual = ALIASES.iter().find(|(name, _)| *name == self.name && self.field.is_none());
        let usual = usual.into_iter().flat_map(|(_, names)| names.iter().copied());
        std::iter::once(self.field.as_deref().unwrap_or(&self.name)).chain(usual)
    }

    /// The value as it is compared; none if the log does not say it.
    pub(super) fn normalized_value<'l>(&self, found: Option<Cow<'l, str>>) -> Option<Cow<'l, str>> {
        let found = found.filter(|value| !value.is_empty() && value != "-");
        match found {
            Some(Cow::Borrowed(text)) => Some(self.form.normalize(text)),
            Some(Cow::Owned(text)) => Some(Cow::Owned(self.form.normalize(&text).into_owned())),
            None => self.fixed.clone().map(Cow::Owned),
        }
    }
}

/// As listeners normalize paths by default, without rejections: the request is in the
/// log.
const LOGGED_PATHS: PathNormalization =
    PathNormalization { slashes: Slashes::Keep, are_parameters_stripped: true, ..PathNormalization::AS_WRITTEN };

impl ValueNormalization {
    fn for_attribute(name: &str) -> Option<Self> {
        match name {
            "ip" | "remote_address" => Some(Self::Address),
            "endpoint" => Some(Self::Path),
            "host" => Some(Self::Host),
            _ => None,
        }
    }

    fn normalize(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Plain => Cow::Borrowed(text),
            // IPv4 has one form already.
            Self::Address if !text.contains(':') => Cow::Borrowed(text),
            Self::Address => {
                let address = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
                address.map_or(Cow::Borrowed(text), |address| Cow::Owned(client_address(address).to_string()))
            }
            Self::Path => RequestTarget::parse(text).endpoint(&LOGGED_PATHS).unwrap_or(Cow::Borrowed(text)),
            Self::Host => host(text).map_or(Cow::Borrowed(text), Cow::Owned),
        }
    }
}

/// A descriptor: names, and where each takes its value from.
#[derive(Debug, Clone)]
pub struct DescriptorPattern {
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
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
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
