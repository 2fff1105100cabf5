//! Dependencies between the top-level modules of a crate point one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Modules, each with those it uses and the file that does.
type Graph = BTreeMap<String, BTreeMap<String, PathBuf>>;

#[test]
fn no_crate_has_a_cycle_between_its_top_level_modules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut cycles = Vec::new();
    for directory in fs::read_dir(crates).unwrap() {
        let source = directory.unwrap().path().join("src");
        if let Some(cycle) = find_cycle(&graph(&source)) {
            cycles.push(format!("{}: {cycle}", source.display()));
        }
    }
    assert!(cycles.is_empty(), "modules use each other in a circle:\n{}", cycles.join("\n"));
}

#[test]
fn cycles_are_found_however_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a; mod b; mod c; pub use self::b::B; pub use c::{Thing, deep::Other as Renamed};");
    write("c.rs", "//! crate::a\nfn f() { /* crate::a */ }\n#[cfg(test)] mod tests { use crate::a; }");
    write("b.rs", "use crate::{Renamed, c::x};");
    write("a/mod.rs", "use crate::b; mod inner;");
    write("a/inner.rs", "use super::x;");
    assert_eq!(find_cycle(&graph(folder.path())), None);
    for (file, text) in [
        ("c.rs", "fn f() { crate::a::g() }"),
        ("c.rs", "use super::b::B;"),
        ("c.rs", "use crate::B;"),
        ("c.rs", "use crate::{b::{self, y}, z};"),
        ("c/inner.rs", "use super::super::b;"),
    ] {
        write(file, text);
        assert!(find_cycle(&graph(folder.path())).is_some(), "{text}");
        fs::remove_file(folder.path().join(file)).unwrap();
    }
}

/// Which top-level modules a crate's modules use, outside of tests.
fn graph(source: &Path) -> Graph {
    let root = ["lib.rs", "main.rs"].iter().find_map(|file| fs::read_to_string(source.join(file)).ok());
    let exports = exports(root.as_deref().unwrap_or_default());
    let mut graph = Graph::new();
    for file in rust_files(source) {
        let path = file.strip_prefix(source).unwrap().with_extension("");
        let mut modules: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if modules.last().is_some_and(|last| last == "mod") {
            modules.pop();
        }
        let Some(own) = modules.first().filter(|first| !["lib", "main"].contains(&first.as_str())) else { continue };
        let mut used = BTreeSet::new();
        collect(tokens(&fs::read_to_string(&file).unwrap()), modules.len(), &mut used);
        let used = used.into_iter().map(|name| exports.get(&name).cloned().unwrap_or(name));
        let others = used.filter(|name| name != own && !is_test_module(&modules)).map(|name| (name, file.clone()));
        graph.entry(own.clone()).or_default().extend(others);
    }
    graph
}

fn is_test_module(modules: &[String]) -> bool {
    modules.iter().any(|module| module == "tests" || module.ends_with("_tests"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => Vec::from_iter(path.extension().is_some_and(|extension| extension == "rs").then_some(path)),
        })
        .collect()
}

/// Names that the crate's root exports, with the module that has them.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let mut tokens = tokens(root).into_iter();
    while let Some(token) = tokens.next() {
        if is_ident(&token, "use") {
            let path: Vec<_> = tokens.by_ref().take_while(|token| !is_punct(token, ';')).collect();
            // `self::` and `crate::` are the root itself.
            let is_root = |token: &TokenTree| is_ident(token, "self") || is_ident(token, "crate");
            let path = if path.first().is_some_and(is_root) { path.get(3..).unwrap_or_default() } else { &path };
            let Some(TokenTree::Ident(module)) = path.first() else { continue };
            let mut names = BTreeSet::new();
            all_idents(path.iter().skip(1).cloned().collect(), &mut names);
            exports.extend(names.into_iter().map(|name| (name, module.to_string())));
        }
    }
    exports
}

fn all_idents(tokens: TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => drop(names.insert(name.to_string())),
            TokenTree::Group(group) => all_idents(group.stream(), names),
            _ => {}
        }
    }
}

/// Collects the first name of every path from the crate's root in a module that is
/// so many levels below it.
fn collect(tokens: TokenStream, depth: usize, used: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            // The item that it belongs to ends with its body or a semicolon.
            while at < tokens.len() && !is_body(&tokens[at]) && !is_punct(&tokens[at], ';') {
                at += 1;
            }
        } else if is_ident(&tokens[at], "crate") {
            at += 1;
            path_from_root(&tokens[at..], used);
        } else if is_ident(&tokens[at], "super") {
            let mut up = 1;
            while tokens.get(at + 3).is_some_and(|token| is_ident(token, "super")) {
                (up, at) = (up + 1, at + 3);
            }
            at += 1;
            if up >= depth {
                path_from_root(&tokens[at..], used);
            }
        } else if let TokenTree::Group(group) = &tokens[at] {
            collect(group.stream(), depth, used);
        }
        at += 1;
    }
}

/// The names that follow `crate` or its equal: `::name` or `::{name, name}`.
fn path_from_root(tokens: &[TokenTree], used: &mut BTreeSet<String>) {
    match tokens {
        [first, second, TokenTree::Ident(name), ..] if is_punct(first, ':') && is_punct(second, ':') => {
            used.insert(name.to_string());
        }
        [first, second, TokenTree::Group(group), ..] if is_punct(first, ':') && is_punct(second, ':') => {
            let listed: Vec<TokenTree> = group.stream().into_iter().collect();
            let names = listed.split(|token| is_punct(token, ',')).filter_map(<[TokenTree]>::first);
            used.extend(names.map(ToString::to_string));
        }
        _ => {}
    }
}

/// `#[cfg(test)]`, also with other conditions.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(group), ..] = tokens else { return false };
    let mut names = BTreeSet::new();
    all_idents(group.stream(), &mut names);
    is_punct(hash, '#') && names.contains("cfg") && names.contains("test") && !names.contains("not")
}

fn is_body(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

/// A cycle, as text: the modules in order, each with the file that uses the next.
fn find_cycle(graph: &Graph) -> Option<String> {
    graph.keys().find_map(|start| walk(graph, start, &mut vec![start.clone()], &mut BTreeSet::new()))
}

fn walk(graph: &Graph, start: &str, path: &mut Vec<String>, seen: &mut BTreeSet<String>) -> Option<String> {
    let here = path.last()?.clone();
    for next in graph.get(&here)?.keys() {
        if next == start {
            let steps = path.iter().zip(path.iter().skip(1).chain([next]));
            let named = steps.map(|(from, to)| format!("{from} -> {to} ({})", graph[from][to].display()));
            return Some(named.collect::<Vec<_>>().join(", "));
        }
        if seen.insert(next.clone()) {
            path.push(next.clone());
            if let Some(cycle) = walk(graph, start, path, seen) {
                return Some(cycle);
            }
            path.pop();
        }
    }
    None
}
