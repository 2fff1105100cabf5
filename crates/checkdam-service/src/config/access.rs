//! Settings of access control: API tokens, and the admin listener with its tokens.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ConfigError, Settings};
use crate::access::{AdminTokens, Caller, NamedToken, Role, Separators, TokenError, TokenSet};
use crate::rulebook::ITSELF;

/// The name of the operator that `--admin-token` belongs to.
const ADMIN: &str = "admin";
/// The longest name of an operator in characters.
const NAME_MAX: usize = 64;

/// The admin API.
#[derive(Debug, Clone)]
pub struct AdminListener {
    /// Where it listens.
    pub listen: String,
    /// What its callers must know. Default none.
    pub tokens: AdminTokens,
    /// Whether its callers need a certificate of a CA for operators. Default no.
    pub has_operator_ca: bool,
}

/// A `[[admin_tokens]]` table.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AdminTokenSettings {
    name: Option<String>,
    role: Option<Role>,
    token: Option<SecretText>,
    token_file: Option<PathBuf>,
}

/// A secret that is never printed.
#[derive(Clone, serde::Deserialize)]
struct SecretText(String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("…")
    }
}

/// The tokens of the HTTP API and the gRPC listener.
pub(super) fn api_tokens(settings: &Settings) -> Result<Option<Arc<TokenSet>>, ConfigError> {
    let (text, path) = (settings.api_token.as_deref(), settings.api_token_file.as_deref());
    Ok(token_set("the API token", text, path, Separators::CommasAndLines)?.map(Arc::new))
}

/// An error if an API token is an admin token too: then every caller of the API would be an
/// operator.
pub(super) fn require_distinct(
    api_tokens: Option<&Arc<TokenSet>>,
    admin: Option<&AdminListener>,
) -> Result<(), ConfigError> {
    let (Some(api), Some(admin)) = (api_tokens, admin) else { return Ok(()) };
    Ok(api.require_distinct(admin.tokens.sets())?)
}

impl AdminListener {
    pub(super) fn from_settings(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let listen = settings.admin_listen.as_ref();
        let listen = listen.map_or("127.0.0.1:8082", String::as_str).to_owned();
        if listen == "off" {
            return Ok(None);
        }
        let tokens = admin_tokens(settings)?;
        let has_operator_ca = super::tls::has_operator_ca(settings);
        if tokens.is_empty() && !has_operator_ca && !is_loopback(&listen) {
            return Err(ConfigError::OpenAdmin { address: listen });
        }
        Ok(Some(Self { listen, tokens, has_operator_ca }))
    }
}

/// `--admin-token`, and the `[[admin_tokens]]` of the file.
fn admin_tokens(settings: &Settings) -> Result<AdminTokens, ConfigError> {
    let (text, path) = (settings.admin_token.as_deref(), settings.admin_token_file.as_deref());
    let own = token_set("the admin token", text, path, Separators::Lines)?;
    let own = own.map(|tokens| NamedToken { name: ADMIN.into(), role: Role::Edit, tokens: Arc::new(tokens) });
    let mut all: Vec<NamedToken> = own.into_iter().collect();
    for entry in settings.admin_tokens.iter().flatten() {
        let token = entry.named_token()?;
        if all.iter().any(|other| other.name == token.name) {
            return Err(entry.invalid("the name is given twice: use another"));
        }
        if all.iter().any(|other| other.tokens.shares_a_token(&token.tokens)) {
            return Err(entry.invalid("another entry has the same token: give each a token of its own"));
        }
        all.push(token);
    }
    Ok(AdminTokens::new(all))
}

impl AdminTokenSettings {
    fn named_token(&self) -> Result<NamedToken, ConfigError> {
        let name = self.name.as_deref().unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
            return Err(self.invalid("give it a name of at most 64 letters, digits, and the characters - _ . @"));
        }
        if [Caller::anonymous(), Caller::with_certificate()].iter().any(|caller| *caller.name == *name) {
            return Err(self.invalid("the name stands for callers without a token: use another"));
        }
        if name.eq_ignore_ascii_case(ITSELF) {
            return Err(self.invalid("the name stands for the server itself in the change log: use another"));
        }
        let role = self.role.ok_or_else(|| self.invalid("give it a role, read or edit"))?;
        let text = self.token.as_ref().map(|SecretText(text)| text.as_str());
        let set = token_set(&format!("the admin token {name:?}"), text, self.token_file.as_deref(), Separators::Lines);
        let tokens = set?.ok_or_else(|| self.invalid("give it a token or a token_file"))?;
        Ok(NamedToken { name: name.into(), role, tokens: Arc::new(tokens) })
    }

    fn invalid(&self, reason: &str) -> ConfigError {
        ConfigError::BadAdminToken { name: self.name.clone().unwrap_or_default(), reason: reason.to_owned() }
    }
}

/// The tokens in a text, else those in a file.
fn token_set(
    what: &str,
    text: Option<&str>,
    path: Option<&Path>,
    separators: Separators,
) -> Result<Option<TokenSet>, TokenError> {
    match (text, path) {
        (Some(text), _) => TokenSet::parse(what, text, separators).map(Some),
        (None, Some(path)) => TokenSet::from_file(what, path, separators).map(Some),
        (None, None) => Ok(None),
    }
}

/// Whether only this machine can connect there. Names are not resolved: except for
/// `localhost`, they count as reachable.
fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        Err(_) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            host == "localhost"
                || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn an_admin_listener_that_others_can_reach_needs_a_token() {
        let listener = |listen: &str, token: Option<&str>| {
            let given = Settings {
                admin_listen: Some(listen.to_owned()),
                admin_token: token.map(str::to_owned),
                ..Settings::default()
            };
            AdminListener::from_settings(&given).map_err(|error| error.to_string())
        };
        for address in ["127.0.0.1:8082", "[::1]:0", "localhost:8082", "[::ffff:127.0.0.1]:8082"] {
            assert!(listener(address, None).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:8082", "[::]:8082", "example.com:8082", ":8082"] {
            assert!(listener(address, None).unwrap_err().contains("--admin-token"), "{address}");
            assert!(listener(address, Some(TOKEN)).is_ok(), "{address}");
        }
        assert!(listener("off", None).unwrap().is_none());
        assert!(listener("127.0.0.1:1", Some("short")).unwrap_err().contains("5 characters"));
        assert!(listener("127.0.0.1:1", Some("with spaces in the token")).is_err());
    }

    #[test]
    fn operators_have_a_name_a_role_and_a_token() {
        let read = |text: &str| {
            let file: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
            let tokens = admin_tokens(&file).map_err(|error| error.to_string())?;
            Ok::<_, String>(tokens.names().map(|(name, role)| (name.to_owned(), role)).collect::<Vec<_>>())
        };
        let entry = |name: &str, rest: &str| format!("[[admin_tokens]]\nname = {name:?}\n{rest}\n");
        let (alice, viewer) = (
            entry("alice", "role = \"edit\"\ntoken = \"0123456789abcdef\""),
            entry("view.er@example", "role = \"read\"\ntoken = \"fedcba9876543210\""),
        );
        let both = read(&format!("admin_token = \"{TOKEN}-admin\"\n{alice}{viewer}")).unwrap();
        let expected = [("admin", Role::Edit), ("alice", Role::Edit), ("view.er@example", Role::Read)];
        assert_eq!(both, expected.map(|(name, role)| (name.to_owned(), role)));
        for (text, reason) in [
            (format!("{alice}{alice}"), "given twice"),
            (format!("admin_token = \"{TOKEN}\"\n{}", alice.replace("alice", "admin")), "given twice"),
            (entry("", "role = \"edit\"\ntoken = \"0123456789abcdef\""), "a name"),
            (entry("cli:bob", "role = \"edit\"\ntoken = \"0123456789abcdef\""), "a name"),
            (entry("anonymous", "role = \"edit\"\ntoken = \"0123456789abcdef\""), "without a token"),
            (entry("checkdam", "role = \"edit\"\ntoken = \"0123456789abcdef\""), "the server itself"),
            (
                format!("{alice}{}", alice.replace("alice", "bob")),
                "\"bob\" is not valid: another entry has the same token",
            ),
            (format!("admin_token = \"{TOKEN}\"\n{alice}"), "another entry has the same token"),
            (entry("bob", "token = \"0123456789abcdef\""), "a role"),
            (entry("bob", "role = \"edit\""), "token_file"),
            (entry("bob", "role = \"edit\"\ntoken = \"short\""), "5 characters"),
            (entry("bob", "role = \"owner\"\ntoken = \"0123456789abcdef\""), "owner"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains(TOKEN), "{error}");
        }
    }

    #[test]
    fn an_api_token_is_no_admin_token() {
        let validate = |text: &str| {
            let file: Settings = toml::from_str(text).unwrap();
            let (api, admin) = (api_tokens(&file), AdminListener::from_settings(&file));
            require_distinct(api.unwrap().as_ref(), admin.unwrap().as_ref()).map_err(|error| error.to_string())
        };
        let operator = format!("[[admin_tokens]]\nname = \"alice\"\nrole = \"edit\"\ntoken = \"{TOKEN}\"");
        assert_eq!(validate(&format!("api_token = \"{TOKEN}-api\"\nadmin_token = \"{TOKEN}\"")), Ok(()));
        assert_eq!(validate(&format!("admin_listen = \"off\"\napi_token = \"{TOKEN}\"\n{operator}")), Ok(()));
        for (text, named) in [
            (
                format!("api_token = \"other-{TOKEN},{TOKEN}\"\nadmin_token = \"{TOKEN}\""),
                "the same as the admin token:",
            ),
            (format!("api_token = \"{TOKEN}\"\n{operator}"), "the same as the admin token \"alice\""),
        ] {
            let error = validate(&text).unwrap_err();
            assert!(error.contains("api_token") && error.contains(named) && !error.contains(TOKEN), "{error}");
        }
    }
}
