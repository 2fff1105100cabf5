//! Settings of the attributes that are derived from proxied requests.

use std::str::FromStr;

use axum::http::HeaderName;
use checkdam::normalize::PathNormalization;
use checkdam::{ATTRIBUTES_MAX, NAME_MAX};
use ipnet::IpNet;

use super::enums::{PathCase, PathPart};
use super::layers::from_text;
use super::{ConfigError, Settings};
use crate::client_identity::{self, ClientIdentity};

/// How attributes are derived from requests.
pub(super) fn options(settings: &Settings) -> Result<ClientIdentity, ConfigError> {
    let trusted = settings.trusted_proxies.as_ref();
    let mapped = settings.header_attributes.as_ref();
    let mapped = mapped.map(Vec::as_slice).unwrap_or_default();
    let mut names = client_identity::ATTRIBUTES.to_vec();
    for HeaderAttribute { attribute, .. } in mapped {
        if names.contains(&attribute.as_str()) {
            return Err(ConfigError::AttributeTwice { attribute: attribute.clone() });
        }
        names.push(attribute);
    }
    if names.len() > ATTRIBUTES_MAX {
        let (name, value) = ("header_attributes", mapped.len() as u64);
        return Err(ConfigError::OutOfRange { name, value, range: "at most 60 headers" });
    }
    let cost_header = settings.cost_header.as_ref();
    Ok(ClientIdentity {
        trusted: trusted.into_iter().flatten().map(|Network(network)| *network).collect(),
        headers: mapped.iter().map(|mapped| (mapped.header.clone(), mapped.attribute.clone())).collect(),
        cost_header: cost_header.map(|HeaderNameSetting(name)| name.clone()),
        paths: path_normalization(settings),
    })
}

fn path_normalization(settings: &Settings) -> PathNormalization {
    let default = PathNormalization::default();
    let is_stripped = |given: Option<PathPart>, default| given.map_or(default, |part| part == PathPart::Strip);
    PathNormalization {
        slashes: settings.path_slashes.map_or(default.slashes, Into::into),
        are_parameters_stripped: is_stripped(settings.path_parameters, default.are_parameters_stripped),
        is_trailing_slash_stripped: is_stripped(settings.path_trailing_slash, default.is_trailing_slash_stripped),
        is_lower_case: settings.path_case.map_or(default.is_lower_case, |case| case == PathCase::Lower),
    }
}

/// A network, or one address.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Network(IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = || text.parse().map(|address: std::net::IpAddr| IpNet::from(address.to_canonical()));
        match text.parse().or_else(|_| address()) {
            Ok(network) => Ok(Self(network)),
            Err(_) => Err(format!("{text:?} is no network: write 10.0.0.0/8, fd00::/8 or an address")),
        }
    }
}

/// A header and the attribute it becomes, written `X-API-Key=api_key`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct HeaderAttribute {
    header: HeaderName,
    attribute: String,
}

impl FromStr for HeaderAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (header, attribute) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} maps nothing: write header=attribute, such as X-API-Key=api_key"))?;
        let (HeaderNameSetting(header), attribute) = (header.trim().parse()?, attribute.trim());
        if attribute.is_empty() || attribute.len() > NAME_MAX {
            return Err(format!("the attribute of {text:?} must have 1 to {NAME_MAX} bytes, such as api_key"));
        }
        Ok(Self { header, attribute: attribute.to_owned() })
    }
}

/// The name of a header.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct HeaderNameSetting(HeaderName);

impl FromStr for HeaderNameSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        HeaderName::from_str(text)
            .map(Self)
            .map_err(|_| format!("{text:?} cannot be the name of a header: write for example X-API-Key"))
    }
}

from_text!(Network, HeaderAttribute, HeaderNameSetting);
