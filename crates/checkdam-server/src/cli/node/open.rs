//! Opens what a node needs at startup: its rules and its audit log, while the store
//! is being checked.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use checkdam::RuleSet;
use checkdam::rule_file;
use checkdam_net::ListenerTls;
use checkdam_service::config::Config;
use checkdam_service::http::respond_until_opened;
use checkdam_service::rulebook::{self, DatabaseUrl, OpenError, RuleFile, Rulebook, RulebookError, Snapshot};
use checkdam_service::store::ConfiguredStore;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::Rules;

/// How long a database is waited for at the start.
const DATABASE_PATIENCE: Duration = Duration::from_secs(15);
const DATABASE_PAUSE: Duration = Duration::from_secs(1);

/// What a node is opened with.
pub(super) struct OpenedNode {
    pub(super) rulebook: Option<Rulebook>,
    pub(super) file: Option<RuleFile>,
    pub(super) loaded: (RuleSet, Snapshot),
}

impl OpenedNode {
    /// Opens external resources: the rules, and the store. Meanwhile the admin listener
    /// responds that the node is starting.
    pub(super) async fn open(
        config: &Config,
        file: Option<Rules>,
        store: &ConfiguredStore,
        admin: Option<(&TcpListener, Option<&Arc<ListenerTls>>)>,
    ) -> anyhow::Result<Self> {
        let load = async {
            let rulebook = open_database(config, file.is_some()).await?;
            let (file, loaded) = match file {
                Some((file, loaded)) => (Some(file), loaded),
                None => (None, load_rules(rulebook.as_ref(), &config.database).await?),
            };
            Ok(Self { rulebook, file, loaded })
        };
        let both = Box::pin(async { tokio::join!(load, store.connect()).0 });
        match admin {
            Some((listener, tls)) => respond_until_opened(listener, tls, both).await,
            None => both.await,
        }
    }
}

/// The database. Rules from a file do without one: then violations are not
/// recorded.
async fn open_database(config: &Config, has_file: bool) -> anyhow::Result<Option<Rulebook>> {
    if has_file && config.audit.per_rule_and_second == 0 {
        return Ok(None);
    }
    let deadline = Instant::now() + DATABASE_PATIENCE;
    let opened = loop {
        match Rulebook::open(&config.database).await {
            // A server that starts together with us may need a moment.
            Err(error @ OpenError::Unavailable { .. }) if config.database.is_server() && Instant::now() < deadline => {
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
            opened => break opened,
        }
    };
    match opened {
        Ok(rulebook) => Ok(Some(rulebook.keeping_changes(config.audit.change_rows_max))),
        Err(error) if has_file => {
            tracing::warn!(%error, "violations are not recorded; set --audit-rate 0 to silence this warning");
            Ok(None)
        }
        Err(error) => Err(error).context("give another place with --database or --data-dir, or rules with --rules"),
    }
}

/// The rules in the database; on the first start the starter rules.
async fn load_rules(rulebook: Option<&Rulebook>, database: &DatabaseUrl) -> anyhow::Result<(RuleSet, Snapshot)> {
    let rulebook = rulebook.context("there are no rules: neither a file nor a database")?;
    rulebook.seed(rule_file::parse_definitions(rulebook::STARTER)?).await?;
    let (snapshot, rules) = rulebook.load_compiled().await.map_err(|(_, error)| match error {
        error @ RulebookError::Unavailable { .. } => anyhow::Error::new(error),
        invalid => anyhow::Error::new(invalid).context(format!(
            "the rules in the database are not valid: mend that row, or remove it, a rule for example with \
             `checkdam rules remove NAME --database {database}`"
        )),
    })?;
    Ok((rules, snapshot))
}
