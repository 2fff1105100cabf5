//! A node without its request listeners: rules, store, audit log and admin listener.
//! `serve` and `proxy` add their listeners.

mod open;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use checkdam::RuleSet;
use checkdam::rule_file::FileOptions;
use checkdam_net::{Listener, ListenerTls, Protocol, ServerState, ShutdownOptions, TlsFiles, follow_certificate_files};
use checkdam_service::app::App;
use checkdam_service::audit::{Audit, Redaction, ViolationWriter};
use checkdam_service::config::{Config, EnvoyVariableReport, VariableEffect};
use checkdam_service::http::{self, Admin, AdminServer, LiveEvents, RuleSource};
use checkdam_service::nodes::Nodes;
use checkdam_service::rulebook::{
    self, DatabasePoller, LoadError, PollOptions, PollStatus, Revision, RuleFile, Rulebook, Snapshot,
};
use checkdam_service::store::ConfiguredStore;
use checkdam_service::telemetry::Telemetry;
use checkdam_service::trace::Tracer;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use self::open::OpenedNode;
use super::signals::Signals;
use super::systemd::{self, ReloadNotice};

/// The threads that accept connections and serve operators and health.
const CONTROL_THREADS: usize = 2;
/// Accept backlog. A SYN that finds it full is retransmitted only after a second.
const BACKLOG: i32 = 4_096;
/// How operators are let go when all else is done.
const ADMIN_LEAVE: ShutdownOptions =
    ShutdownOptions { notice: Duration::from_millis(500), drain: Duration::from_millis(500) };
/// How long the database may take to be closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// How long what was recorded may take to be written at the end.
const AUDIT_DRAIN: Duration = Duration::from_secs(5);
/// How long a reload is waited for.
const RELOAD_LIMIT: Duration = Duration::from_secs(5);
/// How often expired state is removed, and the store polled.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);
/// Each keeps a core busy for a moment.
const PREVIEWS_MAX: usize = 2;

/// A node, ready for its listeners.
pub(super) struct Node {
    app: Arc<App>,
    admin: Option<(AdminServer, Arc<LiveEvents>)>,
    /// Held until the end, whether or not there is an admin listener.
    rules: Arc<RuleSource>,
    rulebook: Option<Rulebook>,
    writer: Option<ViolationWriter>,
    stop: mpsc::Receiver<()>,
    reload_tls: mpsc::Receiver<()>,
    /// The runtime that accepts connections and serves operators and health.
    control: Handle,
}

/// A rule file, and what it says.
pub(super) type Rules = (RuleFile, (RuleSet, Snapshot));

/// Reads the rule file, starts logging, and runs `serve` to its end.
///
/// Requests are served by one runtime. Another accepts connections and serves
/// operators and health, so that these are answered in time under any load.
pub(super) fn run_with_logging<F>(
    config: &Config,
    serve: impl FnOnce(Option<Rules>, Handle) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let file = match config.rules.as_deref().map(|path| open_rules(path, config.files)).transpose() {
        Ok(file) => file,
        Err(error) => {
            // The format that editors parse. Nothing can be reported if this fails.
            let _ = writeln!(std::io::stderr(), "{error}");
            return Ok(ExitCode::from(2));
        }
    };
    checkdam_service::logging::start(config.log_level, config.log_format);
    for name in checkdam_service::config::unknown_variables() {
        tracing::warn!(name, "this variable has no effect: see checkdam serve --help");
    }
    for EnvoyVariableReport { name, became } in &config.foreign {
        match became {
            VariableEffect::Ignored(reason) => {
                tracing::warn!(name, reason, "this variable of envoyproxy/ratelimit has no effect");
            }
            became => tracing::info!(name, %became, "a variable of envoyproxy/ratelimit"),
        }
    }
    let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let mut control = Builder::new_multi_thread();
    control.worker_threads(CONTROL_THREADS).thread_name("control").enable_all();
    let control = control.build().context("cannot start threads")?;
    runtime.block_on(serve(file, control.handle().clone()))?;
    // A rule file that hangs in the file system must not hold the exit up.
    runtime.shutdown_background();
    control.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn open_rules(path: &Path, options: FileOptions) -> Result<Rules, LoadError> {
    let file = RuleFile::open(path, options)?;
    let loaded = file.load()?;
    Ok((file, loaded))
}

impl Node {
    /// Opens what the settings name; none if a signal arrives before that is done.
    /// `address` is that of the node's first listener: it names the node.
    pub(super) async fn open(
        config: &Config,
        file: Option<Rules>,
        mut signals: Signals,
        address: SocketAddr,
        control: Handle,
    ) -> anyhow::Result<Option<Self>> {
        let tracer = Tracer::new(config.telemetry.exemplars, config.trace.as_ref())?;
        let store = match &config.redis {
            Some(options) => ConfiguredStore::redis(options)?,
            None => ConfiguredStore::memory(config.max_buckets),
        };
        let admin_listener = match &config.admin {
            Some(admin) => Some(listen(&admin.listen, "--admin-listen").await?),
            None => None,
        };
        let admin_tls =
            load_tls("admin", config.tls.admin.as_ref().filter(|_| config.admin.is_some()), Protocol::Http)?;
        let node = node_name(address);
        let opened = tokio::select! {
            opened = OpenedNode::open(config, file, &store, admin_listener.as_ref().map(|admin| (admin, admin_tls.as_ref()))) => opened?,
            _ = signals.stop.recv() => {
                tracing::info!("stopped during startup");
                return Ok(None);
            }
        };
        let OpenedNode { rulebook, file, loaded } = opened;
        rulebook::log_warnings(&loaded.0, &loaded.1);
        let revision = loaded.1.revision.clone();
        let key = config.redis.as_ref().map_or("", |options| options.key_secret.as_str());
        let redaction = Redaction::new(&config.secret_attributes, key);
        let audit =
            rulebook.clone().map(|rulebook| (Audit::new(&config.audit, node.clone(), redaction.clone()), rulebook));
        let (audit, writer) = match audit {
            Some(((audit, queue), rulebook)) => {
                let audit = Arc::new(audit);
                let writer = ViolationWriter::start(&audit, queue, rulebook, config.audit);
                (Some(audit), Some(writer))
            }
            None => (None, None),
        };
        let beside = (
            Telemetry::new(&config.telemetry, config.identity.paths, redaction),
            tracer,
            ServerState::new(config.overload),
        );
        let app = Arc::new(App::new(loaded, store, config.dialect, audit, beside));
        let rules = Arc::new(follow_rules(&app, file, rulebook.as_ref(), revision, signals.reload));
        let nodes = Nodes::start(Arc::clone(&app), node, config.share_subjects);
        let admin = admin_listener.zip(config.admin.as_ref()).map(|(listener, access)| {
            let live = LiveEvents::start(Arc::clone(&app), config.store_description());
            let admin = Admin {
                app: Arc::clone(&app),
                tokens: access.tokens.clone(),
                api_tokens: config.api_tokens.clone(),
                rulebook: rulebook.clone(),
                rules: Arc::clone(&rules),
                nodes: Arc::clone(&nodes),
                live: Arc::clone(&live),
                database: config.database.to_string(),
                store: config.store_description(),
                has_operator_ca: access.has_operator_ca,
                previews: Arc::new(Semaphore::new(PREVIEWS_MAX)),
            };
            let listener = Listener::new(listener, &config.connections, &control)?.with_tls(admin_tls);
            Ok::<_, std::io::Error>((http::admin_server(listener, Arc::new(admin)), live))
        });
        let admin = admin.transpose()?;
        let statuses = match &*rules {
            RuleSource::Database(follower) => Some(follower.watch_status()),
            RuleSource::File(_) => None,
        };
        tokio::spawn(run_every_second(Arc::clone(&app), statuses));
        tokio::spawn(maintain_store(Arc::clone(&app)));
        control.spawn(Arc::clone(app.server()).log_overload());
        Ok(Some(Self {
            app,
            admin,
            rules,
            rulebook,
            writer,
            stop: signals.stop,
            reload_tls: signals.reload_tls,
            control,
        }))
    }

    /// The state that listeners share.
    pub(super) const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The scheme and address of the admin listener.
    pub(super) fn admin_address(&self) -> std::io::Result<Option<(&'static str, SocketAddr)>> {
        self.admin.as_ref().map(|(admin, _)| Ok((admin.scheme(), admin.address()?))).transpose()
    }

    /// Runs the listeners until they are stopped and have ended; the admin listener stays
    /// open meanwhile. Last, the audit log is written and prepaid tokens are returned.
    pub(super) async fn run<F>(self, listeners: impl FnOnce(mpsc::Receiver<()>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tls = self.app.server().tls();
        if !tls.is_empty() {
            self.control.spawn(follow_certificate_files(tls, self.reload_tls));
        }
        let (end_admin, admin_stop) = mpsc::channel(1);
        let (admin, live) = self.admin.unzip();
        let admin = admin.map(|admin| self.control.spawn(admin.run(admin_stop, ADMIN_LEAVE)));
        let rules = self.app.limiter().rules().rules().len();
        systemd::notify_ready(&format!("{rules} rules are active"));
        // If it panics there is nothing left to wait for.
        let _ = self.control.spawn(listeners(self.stop)).await;
        // Live event streams must not delay the exit.
        if let Some(live) = live {
            live.close();
        }
        // If it is gone, it has nothing to end.
        let _ = end_admin.send(()).await;
        let written = async {
            if let Some(writer) = self.writer {
                writer.finish(Instant::now() + AUDIT_DRAIN).await;
            }
        };
        tokio::join!(written, self.app.tracer().finish(), self.app.limiter().store().return_leases());
        if let Some(admin) = admin {
            let _ = admin.await;
        }
        drop(self.rules);
        if let Some(rulebook) = self.rulebook {
            // A database that hangs must not hold the exit up.
            let _ = tokio::time::timeout(CLOSE_LIMIT, rulebook.close()).await;
        }
        tracing::info!("stopped");
    }
}

/// Listens, or says which flag to change.
pub(super) async fn listen(address: &str, flag: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: free the address or give another with {flag}"))?;
    // The system uses the smaller of this and its own limit. On failure the backlog
    // stays as it is.
    let _ = SockRef::from(&listener).listen(BACKLOG);
    Ok(listener)
}

/// Loads the TLS files of a listener, if it has TLS.
pub(super) fn load_tls(
    listener: &'static str,
    files: Option<&TlsFiles>,
    protocol: Protocol,
) -> anyhow::Result<Option<Arc<ListenerTls>>> {
    let loaded = files.map(|files| ListenerTls::load(listener, files.clone(), protocol)).transpose();
    Ok(loaded.with_context(|| format!("the {listener} listener has no TLS"))?.map(Arc::new))
}

/// Watches the source of the rules.
fn follow_rules(
    app: &Arc<App>,
    file: Option<RuleFile>,
    rulebook: Option<&Rulebook>,
    revision: Revision,
    mut reload: mpsc::Receiver<ReloadNotice>,
) -> RuleSource {
    let Some(rulebook) = rulebook.filter(|_| file.is_none()) else {
        let path = file.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default();
        if let Some(file) = file {
            let following = Arc::clone(app);
            let apply = move |loaded: Result<(RuleSet, Snapshot), String>| match loaded {
                Ok((rules, snapshot)) => following.activate(rules, snapshot),
                Err(reason) => following.reload_status().set_error(Some(reason)),
            };
            tokio::spawn(rulebook::watch(file, reload, apply));
        }
        return RuleSource::File(path);
    };
    let following = Arc::clone(app);
    let apply = move |rules: RuleSet, snapshot: Snapshot| {
        rulebook::log_warnings(&rules, &snapshot);
        following.activate(rules, snapshot);
    };
    let follower = DatabasePoller::start(rulebook.clone(), revision, PollOptions::default(), apply);
    if let ConfiguredStore::Redis(watched) = app.limiter().store() {
        let (mut hints, hint) = (watched.change_notifications(), follower.poll_hint());
        tokio::spawn(async move {
            while hints.recv().await.is_some() {
                hint.notify_one();
            }
        });
    }
    let mut looks = follower.poll_requests();
    tokio::spawn(async move {
        // systemd is notified of the end when this is dropped.
        while let Some(_reloading) = reload.recv().await {
            tracing::info!("SIGHUP: reloading the rulebook");
            if tokio::time::timeout(RELOAD_LIMIT, looks.poll()).await.is_err() {
                tracing::warn!("SIGHUP: cannot read the rulebook in time; retrying");
            }
        }
    });
    RuleSource::Database(follower)
}

/// What records call this node: the machine's name and our port.
fn node_name(address: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "node" } else { host }, address.port())
}

/// By itself, because a store that hangs is waited for.
async fn maintain_store(app: Arc<App>) {
    let mut ticks = tokio::time::interval(MAINTAIN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.limiter().store().maintain(app.needs_store()).await;
    }
}

async fn run_every_second(app: Arc<App>, statuses: Option<watch::Receiver<PollStatus>>) {
    let mut ticks = tokio::time::interval(MAINTAIN_EVERY);
    loop {
        ticks.tick().await;
        // It may take long if there is much: requests must not wait for it.
        let watching = Arc::clone(&app);
        let _ = tokio::task::spawn_blocking(move || watching.telemetry().tick()).await;
        if let Some(statuses) = &statuses {
            let PollStatus { error, lost, .. } = statuses.borrow().clone();
            app.reload_status().set_error(error);
            app.warnings().set("lost_edits", lost.map(|lost| lost.to_string()));
        }
        let tls = app.server().tls();
        let join = |texts: Vec<String>| (!texts.is_empty()).then(|| texts.join("; "));
        app.warnings().set("tls_expiry", join(tls.iter().filter_map(|tls| tls.expiry_warning()).collect()));
        app.warnings().set("tls_files", join(tls.iter().filter_map(|tls| tls.reload_error()).collect()));
    }
}
