//! Starts programs that need a configuration file and are ready when their port
//! accepts.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::install::{caddy, haproxy, nginx, traefik};
use crate::port::free_port;
use crate::process::Process;
use crate::wait::holds_within;

/// A slow machine unpacks and links two hundred megabytes of Traefik in this time.
const START: Duration = Duration::from_secs(30);
/// The port can be lost to another process between its choice and its use.
const ATTEMPTS: usize = 3;

/// What surrounds a site in nginx: one process without privileges, and files in a folder of its own. A master would
/// survive as its worker when it is killed.
const NGINX: &str = "daemon off; master_process off; pid nginx.pid; error_log stderr; events {}\n\
    http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
    uwsgi_temp_path uwsgi; scgi_temp_path scgi; include site.conf; }\n";

/// What surrounds a site in Caddy: no admin port, and nothing kept.
const CADDY: &str = "{\n\tadmin off\n\tpersist_config off\n}\nimport site\n";

/// A running program, killed and removed with its files by its drop.
pub struct Daemon {
    process: Process,
    dir: TempDir,
    address: SocketAddr,
}

impl Daemon {
    /// Starts `program` on a free port of 127.0.0.1. `prepare` is given the port and a folder; it writes there what
    /// the program needs and returns its arguments. The program runs in that folder, which is also its home.
    pub fn start(program: &Path, prepare: impl Fn(u16, &Path) -> Vec<OsString>) -> Self {
        for _ in 0..ATTEMPTS {
            let dir = TempDir::with_prefix("checkdam-testkit-").expect("cannot create a folder for the program");
            let port = free_port();
            let mut command = Command::new(program);
            command.args(prepare(port, dir.path())).current_dir(dir.path());
            for home in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
                command.env(home, dir.path());
            }
            let process = Process::spawn(&mut command, &dir.path().join("log"), dir.path());
            let mut daemon = Self { process, dir, address: (Ipv4Addr::LOCALHOST, port).into() };
            let mut is_running = true;
            let is_ready = holds_within(START, || {
                is_running = daemon.process.is_running();
                !is_running || TcpStream::connect(daemon.address).is_ok()
            });
            if is_ready && is_running {
                return daemon;
            }
            let log = daemon.log();
            assert!(
                log.to_lowercase().contains("address already in use"),
                "{} does not start:\n{log}",
                program.display()
            );
        }
        panic!("{} lost its port {ATTEMPTS} times", program.display());
    }

    /// nginx with what stands in its `http` block.
    pub fn nginx(site: impl Fn(u16) -> String) -> Self {
        Self::start(&nginx(), |port, dir| {
            write(dir, "site.conf", &site(port));
            write(dir, "nginx.conf", NGINX);
            ["-e", "stderr", "-p", ".", "-c", "nginx.conf"].map(Into::into).to_vec()
        })
    }

    /// Caddy with a Caddyfile without global options.
    pub fn caddy(site: impl Fn(u16) -> String) -> Self {
        Self::start(&caddy(), |port, dir| {
            write(dir, "site", &site(port));
            write(dir, "Caddyfile", CADDY);
            ["run", "--config", "Caddyfile", "--adapter", "caddyfile"].map(Into::into).to_vec()
        })
    }

    /// Traefik with a dynamic configuration and one entry point, `web`. It listens before it has read that: it is
    /// ready when `/` leads somewhere.
    pub fn traefik(dynamic: impl Fn(u16) -> String) -> Self {
        let traefik = Self::start(&traefik(), |port, dir| {
            write(dir, "dynamic.yml", &dynamic(port));
            let entry = format!("--entryPoints.web.address=127.0.0.1:{port}");
            let quiet = ["--global.checkNewVersion=false", "--global.sendAnonymousUsage=false"].map(OsString::from);
            [entry.into(), "--providers.file.filename=dynamic.yml".into()].into_iter().chain(quiet).collect()
        });
        let is_ready = holds_within(START, || status_line(traefik.address).is_ok_and(|line| !line.contains(" 404 ")));
        assert!(is_ready, "Traefik leads nowhere:\n{}", traefik.log());
        traefik
    }

    /// HAProxy with a whole configuration; `files` are those that it names, and lie in its working directory.
    pub fn haproxy(configuration: impl Fn(u16) -> String, files: &[(&str, &str)]) -> Self {
        Self::start(&haproxy(), |port, dir| {
            for (name, content) in files {
                write(dir, name, content);
            }
            write(dir, "haproxy.cfg", &configuration(port));
            ["-db", "-f", "haproxy.cfg"].map(Into::into).to_vec()
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The folder it runs in, removed with it.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    #[allow(clippy::print_stderr, reason = "a failing test should tell what its servers said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the program said:\n{}", self.log());
        }
    }
}

/// How a server begins its answer to a request for `/`.
fn status_line(server: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(START))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

fn write(dir: &Path, name: &str, content: &str) {
    let path = dir.join(name);
    fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
