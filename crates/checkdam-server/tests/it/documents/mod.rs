//! The README, the book and the other Markdown files: links resolve, rule files and
//! settings are valid, examples print what is shown, references are complete.

mod console;
mod markdown;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use self::markdown::{Block, Page, pages, root};
use crate::server_process::{Server, folder, run, text};

/// The pages whose examples are checked.
fn with_examples() -> Vec<Page> {
    let mut pages = pages();
    pages.retain(|page| page.is_of_book() || page.path.as_os_str() == "README.md");
    pages
}

/// The blocks of these pages that are written in `language` and not marked to be ignored.
fn blocks<'a>(pages: &'a [Page], language: &'a str) -> impl Iterator<Item = (&'a Page, &'a Block)> {
    let all = pages.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block)));
    all.filter(move |(_, block)| block.language() == language && !block.has("ignore"))
}

fn page(pages: &[Page], path: &str) -> String {
    assert!(pages.iter().any(|page| page.path.as_os_str() == path), "there is no {path}");
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn every_page_of_the_book_is_a_chapter() {
    let pages = pages();
    let (summary, chapters): (Vec<&Page>, Vec<&Page>) =
        pages.iter().filter(|page| page.is_of_book()).partition(|page| page.path.ends_with("SUMMARY.md"));
    let listed: BTreeSet<PathBuf> = summary[0].links.iter().map(|link| summary[0].target(link)).collect();
    let written: BTreeSet<PathBuf> = chapters.iter().map(|page| page.path.clone()).collect();
    assert_eq!(listed, written, "docs/SUMMARY.md lists other pages than there are");
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut dead = Vec::new();
    for page in &pages {
        for link in page.links.iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.path.clone() } else { page.target(path) };
            let has_anchor = || pages.iter().any(|page| page.path == target && page.anchors.contains(anchor));
            // The rendered book has nothing but what is below docs.
            let is_reached = !page.is_of_book() || target.starts_with("docs");
            if !is_reached || !root().join(&target).exists() || (!anchor.is_empty() && !has_anchor()) {
                dead.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links (pages of the book link to pages of the book only):\n{}", dead.join("\n"));
}

#[test]
fn every_file_that_a_page_names_exists() {
    let folders = ["bench/", "clients/", "crates/", "deploy/", "docs/", "examples/", "fuzz/", "models/"];
    let is_path = |span: &&String| {
        folders.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '*', '{', '…', '<'])
    };
    let missing: Vec<String> = with_examples()
        .iter()
        .flat_map(|page| page.spans.iter().filter(is_path).map(|span| (page.path.display().to_string(), span.clone())))
        .filter(|(_, span)| !root().join(span).exists())
        .map(|(page, span)| format!("{page}: {span}"))
        .collect();
    assert!(missing.is_empty(), "files that do not exist:\n{}", missing.join("\n"));
}

#[test]
fn every_rule_file_is_valid_unless_it_shows_an_error() {
    let (pages, folder) = (with_examples(), folder());
    for (page, block) in blocks(&pages, "yaml") {
        let file = folder.join("rules.yaml");
        std::fs::write(&file, &block.text).unwrap();
        let output = run(&["rules", "check", file.to_str().unwrap()]);
        let is_valid = output.status.code() == Some(0);
        assert_eq!(is_valid, !block.has("invalid"), "{}: {}\n{output:?}", page.path.display(), block.text);
    }
}

#[test]
fn every_settings_file_is_valid() {
    let (pages, folder) = (with_examples(), folder());
    for (page, block) in blocks(&pages, "toml") {
        let file = folder.join("checkdam.toml");
        std::fs::write(&file, &block.text).unwrap();
        let proxy = block.text.contains("[proxy]").then_some("--proxy");
        let arguments: Vec<&str> = ["config", "check", file.to_str().unwrap()].into_iter().chain(proxy).collect();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}: {}\n{output:?}", page.path.display(), block.text);
    }
}

#[test]
fn examples_print_what_is_shown() {
    // Installs it where it is missing; the examples find it by PATH.
    testkit::curl();
    let pages = with_examples();
    std::thread::scope(|scope| {
        for page in pages.iter().filter(|page| blocks(std::slice::from_ref(page), "console").next().is_some()) {
            scope.spawn(|| console::run(page));
        }
    });
}

#[test]
fn references_are_complete() {
    let (pages, server) = (pages(), Server::start());
    let mut missing = Vec::new();
    let mut expect = |path: &str, names: Vec<String>| {
        let text = page(&pages, path);
        missing.extend(names.into_iter().filter(|name| !text.contains(name)).map(|name| format!("{path}: {name}")));
    };
    let metrics = server.client().get("/metrics").body;
    let families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    expect("docs/reference/metrics.md", families.map(str::to_owned).collect());
    let api: Value = serde_json::from_str(&server.client().get("/openapi.json").body).unwrap();
    let paths = api["paths"].as_object().unwrap().keys();
    expect("docs/reference/http.md", paths.cloned().collect());
    let fields = api["components"]["schemas"]["RuleBody"]["properties"].as_object().unwrap().keys();
    expect("docs/rules/reference.md", fields.map(|field| format!("| `{field}` |")).collect());
    expect("docs/reference/cli.md", commands(&[]));
    expect("docs/reference/cli.md", commands(&["rules"]).iter().map(|name| format!("rules {name}")).collect());
    assert!(missing.is_empty(), "references that lack names:\n{}", missing.join("\n"));
}

/// The commands below `command`.
fn commands(command: &[&str]) -> Vec<String> {
    let help = text(&run(&[command, &["--help"]].concat()).stdout);
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let names = listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}
