//! Converts descriptor trees to rules, because a database has no trees.

use checkdam::Definitions;

/// Trees as rules, behind the others; and what no rule can say.
pub(crate) fn flatten_trees(mut definitions: Definitions) -> (Definitions, Vec<String>) {
    let mut left_out = Vec::new();
    for tree in std::mem::take(&mut definitions.trees) {
        let translated = tree.rules();
        definitions.rules.extend(translated.rules);
        left_out.extend(translated.left_out);
    }
    (definitions, left_out)
}

/// The error for limits that no rule can express.
pub(crate) fn unsupported_trees_error(left_out: &[String], remedy: &str) -> String {
    format!("{} of its limits cannot be turned into rules: {}; {remedy}", left_out.len(), left_out.join("; "))
}
