//! Parses upstreams and costs of proxy routes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use axum::http::uri::{Authority, Scheme};
use checkdam::LIMIT_MAX;
use checkdam::store::redis::redacted_url;
use checkdam_net::ServerUrl;

use super::layers::from_text;

/// A server behind the proxy: `http://host:port` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct UpstreamUrl {
    pub scheme: Scheme,
    pub authority: Authority,
}

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = redacted_url(text);
        let refused = |reason: &str| format!("{shown:?} {reason}: write for example http://127.0.0.1:3000");
        let url = text.parse::<ServerUrl>().map_err(|error| refused(&error.to_string()))?;
        if !url.prefix.is_empty() {
            return Err(refused("has a path, but paths are passed on as they come"));
        }
        Ok(Self { scheme: url.scheme, authority: url.authority })
    }
}

from_text!(UpstreamUrl);

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.scheme, self.authority)
    }
}

/// What requests cost, by their method: `5`, or `POST=5,PUT=5`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "CostsInFile")]
pub struct Costs {
    others: u64,
    methods: Vec<(Method, u64)>,
}

/// As the file has it: `cost = 5` or `cost = { POST = 5 }`.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a number, or numbers by method such as { POST = 5 }")]
enum CostsInFile {
    All(u64),
    ByMethod(BTreeMap<String, u64>),
}

impl Costs {
    /// What a request of this method costs.
    pub fn cost_of(&self, method: &Method) -> u64 {
        self.methods.iter().find(|(known, _)| known == method).map_or(self.others, |(_, cost)| *cost)
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self { others: 1, methods: Vec::new() }
    }
}

impl FromStr for Costs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(cost) = text.parse() {
            return CostsInFile::All(cost).try_into();
        }
        let pair = |part: &str| {
            let (method, cost) = part.split_once('=')?;
            Some((method.trim().to_owned(), cost.trim().parse().ok()?))
        };
        let pairs = text.split(',').map(pair).collect::<Option<_>>();
        let pairs = pairs.ok_or_else(|| format!("{text:?} is no cost: write 5, or by method POST=5,PUT=5"))?;
        CostsInFile::ByMethod(pairs).try_into()
    }
}

impl TryFrom<CostsInFile> for Costs {
    type Error = String;

    fn try_from(written: CostsInFile) -> Result<Self, String> {
        let checked = |cost: u64| match cost {
            1..=LIMIT_MAX => Ok(cost),
            _ => Err(format!("a cost is {cost}: it must be 1 to {LIMIT_MAX}")),
        };
        match written {
            CostsInFile::All(cost) => Ok(Self { others: checked(cost)?, methods: Vec::new() }),
            CostsInFile::ByMethod(costs) => {
                let method = |(name, cost): (String, u64)| {
                    let method = Method::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no method"))?;
                    Ok::<_, String>((method, checked(cost)?))
                };
                Ok(Self { others: 1, methods: costs.into_iter().map(method).collect::<Result<_, _>>()? })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_a_host_and_a_port() {
        for text in ["http://127.0.0.1:3000", "https://example.com", "http://[::1]:80/"] {
            assert_eq!(text.parse::<UpstreamUrl>().unwrap().to_string(), text.trim_end_matches('/'));
        }
        for text in ["", "127.0.0.1:3000", "ftp://x", "http://u:p@x", "http://x/path", "http://x?q", "http://"] {
            assert!(text.parse::<UpstreamUrl>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_cost_is_a_number_or_one_for_each_method() {
        let of = |text: &str, method: &Method| text.parse::<Costs>().map(|costs| costs.cost_of(method));
        assert_eq!((of("3", &Method::GET), of("3", &Method::POST)), (Ok(3), Ok(3)));
        assert_eq!((of("POST=5, PUT=2", &Method::PUT), of("POST=5,PUT=2", &Method::GET)), (Ok(2), Ok(1)));
        for text in ["", "0", "POST", "POST=0", "POST=x", "A B=1", "1000000000001"] {
            assert!(text.parse::<Costs>().is_err(), "{text:?}");
        }
    }
}
