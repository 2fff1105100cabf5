//! Markdown files of the repository: their links, anchors, code spans and fenced blocks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The files at the root, and the folders whose Markdown is checked.
const ROOTS: [&str; 7] =
    ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "deploy", "clients", "crates/checkdam/vectors"];

/// One Markdown file.
pub(super) struct Page {
    /// Where it is in the repository.
    pub(super) path: PathBuf,
    /// The targets of its links and images.
    pub(super) links: Vec<String>,
    /// What links can name behind `#`.
    pub(super) anchors: BTreeSet<String>,
    /// Its code spans.
    pub(super) spans: Vec<String>,
    pub(super) blocks: Vec<Block>,
}

/// A fenced block.
pub(super) struct Block {
    /// The info string, such as `yaml,file=rules.yaml`.
    info: String,
    pub(super) text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let mut page = Self { path, links: vec![], anchors: BTreeSet::new(), spans: vec![], blocks: vec![] };
        let mut heading: Option<String> = None;
        let mut block: Option<Block> = None;
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    block = Some(Block { info: info.into_string(), text: String::new() });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Code(code) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&code));
                    page.spans.push(code.into_string());
                }
                Event::Text(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text));
                    block.iter_mut().for_each(|block| block.text.push_str(&text));
                }
                _ => {}
            }
        }
        page
    }

    /// Names a heading as GitHub and mdBook do; the second of a name gets `-1`.
    fn add_anchor(&mut self, heading: &str) {
        let kept = |character: char| match character {
            ' ' => Some('-'),
            '_' | '-' => Some(character),
            _ => character.is_alphanumeric().then_some(character),
        };
        let name: String = heading.to_lowercase().chars().filter_map(kept).collect();
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }

    /// Whether it is a chapter of the book, or the book's list of chapters.
    pub(super) fn is_of_book(&self) -> bool {
        self.path.starts_with("docs")
    }

    /// The file that a relative link leads to.
    pub(super) fn target(&self, link: &str) -> PathBuf {
        let mut target = self.path.parent().unwrap().to_owned();
        for part in Path::new(link).components() {
            match part {
                std::path::Component::ParentDir => drop(target.pop()),
                std::path::Component::CurDir => {}
                part => target.push(part),
            }
        }
        target
    }
}

impl Block {
    /// What it is written in.
    pub(super) fn language(&self) -> &str {
        self.words().next().unwrap_or_default()
    }

    /// Whether its info string has this word behind the language.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words().skip(1).any(|own| own == word)
    }

    /// The file that examples of the page find it in.
    pub(super) fn file(&self) -> Option<&str> {
        self.words().find_map(|word| word.strip_prefix("file="))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.info.split(',').map(str::trim)
    }
}

/// The repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Markdown file that users read, sorted by path.
pub(super) fn pages() -> Vec<Page> {
    let mut unseen: Vec<PathBuf> = ROOTS.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(path) = unseen.pop() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if root().join(&path).is_dir() {
            let is_ours = name != "node_modules" && !name.starts_with('.');
            let entries = std::fs::read_dir(root().join(&path)).unwrap().filter(|_| is_ours);
            unseen.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found.into_iter().map(Page::read).collect()
}
