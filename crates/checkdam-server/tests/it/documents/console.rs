//! Runs the `console` blocks of a page: each `$ command` in bash, its output compared
//! with what the page shows.
//!
//! In what a page shows, `…` stands for any text within a line, and a line that is only
//! `…` for any lines. Times, and what depends on them, are not compared.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use super::markdown::{Block, Page};
use crate::server_process::{Server, folder, text};

/// The addresses in the examples: HTTP, gRPC, admin.
const ADDRESSES: [&str; 3] = ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"];

/// What differs from run to run, and what stands for it.
static UNSTABLE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"(?m)^date: .*$", "date: TIME"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r#"(x-ratelimit-reset: |retry-after: |content-length: |;t=|_ms":)\d+"#, "${1}NUMBER"),
        // Tokens return while the next command starts.
        (r#"(x-ratelimit-remaining: |;r=|remaining":)\d+"#, "${1}NUMBER"),
        (r"\d+(\.\d+)? ?(µs|ms|s)\b", "TIME"),
        (r"[ \t]+", " "),
        (r"(?m) $", ""),
    ];
    patterns.map(|(pattern, stands_for)| (Regex::new(pattern).unwrap(), stands_for)).into()
});

/// A command of a block, and the output that the page shows.
struct Example {
    command: String,
    shown: String,
}

/// Runs the page's examples in order, with a server and a folder of their own.
///
/// # Panics
/// Where a command prints something else than the page shows.
pub(super) fn run(page: &Page) {
    let server = Server::start();
    let folder = folder();
    // Where output is no terminal, curl reports its progress.
    std::fs::write(folder.join(".curlrc"), "silent\nshow-error\n").unwrap();
    for block in &page.blocks {
        if let Some(name) = block.file() {
            std::fs::write(folder.join(name), &block.text).unwrap();
        }
        if block.language() == "console" && !block.has("ignore") {
            examples(block).iter().for_each(|example| example.run(page, &server, &folder));
        }
    }
}

fn examples(block: &Block) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(Example { command: command.to_owned(), shown: String::new() }),
            (None, Some(example)) if example.command.ends_with('\\') => example.command += &format!("\n{line}"),
            (None, Some(example)) => example.shown += &format!("{line}\n"),
            (None, None) => panic!("a console block begins with {line:?}: begin it with \"$ \" and a command"),
        }
    }
    examples
}

impl Example {
    fn run(&self, page: &Page, server: &Server, folder: &Path) {
        let own = [server.address(), server.grpc_address(), server.admin_address()];
        let command =
            ADDRESSES.iter().zip(own).fold(self.command.clone(), |text, (shown, own)| text.replace(shown, own));
        let programs = Path::new(env!("CARGO_BIN_EXE_checkdam")).parent().unwrap().display();
        let output = Command::new("timeout")
            .args(["30", "bash", "-c", &format!("exec 2>&1\n{command}")])
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
            .env("HOME", folder)
            .env("CHECKDAM_SERVER", format!("http://{}", own[0]))
            .env("CHECKDAM_ADMIN_SERVER", format!("http://{}", own[2]))
            .output()
            .expect("timeout and bash run");
        let printed = text(&output.stdout).replace('\r', "");
        let printed = ADDRESSES.iter().zip(own).fold(printed, |text, (shown, own)| text.replace(own, shown));
        assert!(
            matches(&self.shown, &printed),
            "{}: {}\nprints\n{printed}\nand the page shows\n{}",
            page.path.display(),
            self.command,
            self.shown
        );
    }
}

/// Whether a command printed what a page shows.
fn matches(shown: &str, printed: &str) -> bool {
    let line = |line: &str| match line.trim() {
        "…" => r"(?:.*\n)*".to_owned(),
        _ => line.split('…').map(regex::escape).collect::<Vec<_>>().join(".*") + r"\n",
    };
    let pattern: String = stable(shown).lines().map(line).collect();
    Regex::new(&format!(r"\A{pattern}\z")).unwrap().is_match(&stable(printed))
}

/// The text without what differs from run to run, each line ended.
fn stable(text: &str) -> String {
    let text = UNSTABLE.iter().fold(text.trim_end().to_owned(), |text, (pattern, stands_for)| {
        pattern.replace_all(&text, *stands_for).into_owned()
    });
    text.lines().map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_shown_matches_what_is_printed() {
    for (shown, printed, expected) in [
        ("", "", true),
        ("a\n", "a", true),
        ("a\n", "b\n", false),
        ("a …\n", "a b\n", true),
        ("a\n…\n", "a\nb\nc\n", true),
        ("…\nc\n", "a\nb\nc\n", true),
        ("a\n", "a\nb\n", false),
        ("retry-after: 5\ndate: Tue\n", "retry-after: 4\ndate: Wed, 18 Nov\n", true),
        ("x  1.5s  2026-11-17T05:52:34Z\n", "x 900ms 2026-11-17T05:53:12.368Z\n", true),
        ("q=50;r=49;t=1\n", "q=50;r=48;t=2\n", true),
        ("q=50;r=49\n", "q=51;r=49\n", false),
    ] {
        assert_eq!(matches(shown, printed), expected, "{shown:?} {printed:?}");
    }
}
