//! The API token that commands send to a server's HTTP API or gRPC listener.

use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::http::header::AUTHORIZATION;

use super::http_client::ApiRequest;

const TOKEN_VARIABLE: &str = "CHECKDAM_API_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "CHECKDAM_API_TOKEN_FILE";

/// The token of a server that needs one.
#[derive(Debug, clap::Args)]
pub(crate) struct ApiTokenArguments {
    /// API token; prefer the file or the environment variable, because process listings show flags [env:
    /// CHECKDAM_API_TOKEN=]
    #[arg(long, value_name = "TOKEN")]
    api_token: Option<String>,

    /// File containing the API token; the first is used if there are several [env: CHECKDAM_API_TOKEN_FILE=]
    #[arg(long, value_name = "FILE", conflicts_with = "api_token")]
    api_token_file: Option<PathBuf>,
}

impl ApiTokenArguments {
    /// The token: a flag wins over a variable, and text over a file. Of several, as the
    /// server's own settings may have them, it is the first.
    pub(super) fn token(&self) -> anyhow::Result<Option<String>> {
        let text = match (&self.api_token, &self.api_token_file) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(path)) => Some(read(path)?),
            (None, None) => match (variable(TOKEN_VARIABLE), variable(TOKEN_FILE_VARIABLE)) {
                (Some(text), _) => Some(text),
                (None, path) => path.map(|path| read(Path::new(&path))).transpose()?,
            },
        };
        let Some(text) = text else { return Ok(None) };
        let token = text.split([',', '\n', '\r']).find(|token| !token.is_empty()).unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            anyhow::bail!("the API token is empty or contains a character that is not allowed in a header");
        }
        Ok(Some(token.to_owned()))
    }

    /// A request with the token, if there is one.
    pub(super) fn sign(&self, call: ApiRequest) -> anyhow::Result<ApiRequest> {
        Ok(match self.token()? {
            Some(token) => call.header(AUTHORIZATION, format!("Bearer {token}")),
            None => call,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = checkdam_service::config::read_text(path);
    text.with_context(|| format!("the token file {} cannot be read", path.display()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
