//! A server's wall clock under the test's control: the shim in `clock_shim.c` and the file it reads its offset from.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use crate::install::{kept_dir, locked, must_run};

const SOURCE: &str = include_str!("clock_shim.c");

/// Valkey reads the wall clock once a millisecond and counts on from there by the processor's tick counter.
const REREAD: Duration = Duration::from_millis(2);

/// The clock of one server.
pub(crate) struct Clock {
    file: File,
    path: PathBuf,
    offset_us: Mutex<i64>,
}

impl Clock {
    /// A clock that is `offset_us` ahead of the machine's, kept in `dir`.
    pub(crate) fn new(dir: &Path, offset_us: i64) -> Self {
        let path = dir.join("clock-offset-us");
        let file = File::create(&path).expect("cannot create the clock's file");
        file.write_all_at(&offset_us.to_ne_bytes(), 0).expect("cannot write the clock's file");
        Self { file, path, offset_us: Mutex::new(offset_us) }
    }

    /// Puts the server that `command` starts under this clock.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", shim()).env("TESTKIT_CLOCK_FILE", &self.path);
    }

    /// Moves the clock by `step_us`, forwards or back, and waits until the server must have noticed.
    pub(crate) fn step(&self, step_us: i64) {
        let mut offset_us = self.offset_us.lock().unwrap();
        *offset_us += step_us;
        self.file.write_all_at(&offset_us.to_ne_bytes(), 0).expect("cannot write the clock's file");
        sleep(REREAD);
    }
}

/// The compiled shim. Its name holds the hash of its source, so a change to the source compiles anew.
fn shim() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let name = format!("clock_shim-{:016x}", hasher.finish());
    let library = kept_dir().join(&name).with_extension("so");
    locked(&kept_dir().join("clock_shim.lock"), || {
        if !library.exists() {
            compile(&kept_dir().join(name), &library);
        }
    });
    library
}

fn compile(stem: &Path, library: &Path) {
    let source = stem.with_extension("c");
    let unfinished = stem.with_extension("so.part");
    fs::write(&source, SOURCE).expect("cannot write the shim's source");
    must_run(
        Command::new("cc").args(["-O2", "-fPIC", "-shared", "-o"]).arg(&unfinished).arg(&source).arg("-ldl"),
        "stepping a server's clock needs a C compiler named `cc` and the C library's headers \
         (Debian: `apt-get install gcc libc6-dev`)",
    );
    fs::rename(&unfinished, library).expect("cannot move the compiled shim into place");
}
