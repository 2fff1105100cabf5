//! Paths in one form, so that nobody gets a bucket of his own by writing the
//! same path differently.

use std::borrow::Cow;

/// A path in its normal form: escapes of characters that need none are decoded
/// and the others written in capitals, dot segments are resolved, and runs of
/// slashes are one.
///
/// ```
/// use checkdam::layer::normalised;
/// assert_eq!(normalised("/api/search"), "/api/search");
/// assert_eq!(normalised("//api/./%73earch%2f"), "/api/search%2F");
/// ```
#[must_use]
pub fn normalised(path: &str) -> Cow<'_, str> {
    let is_normal = !path.starts_with('/') || !(path.contains('%') || path.contains("//") || path.contains("/."));
    if is_normal {
        return Cow::Borrowed(path);
    }
    Cow::Owned(resolved(&decoded(path)))
}

fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let mut rest = 0;
    while let Some(found) = path[rest..].find('%') {
        let at = rest + found;
        out.push_str(&path[rest..at]);
        let digit = |index: usize| bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        let Some((high, low)) = digit(at + 1).zip(digit(at + 2)) else {
            out.push('%');
            rest = at + 1;
            continue;
        };
        let character = char::from((high * 16 + low) as u8);
        if character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~') {
            out.push(character);
        } else {
            out.extend(path[at..at + 3].chars().map(|character| character.to_ascii_uppercase()));
        }
        rest = at + 3;
    }
    out.push_str(&path[rest..]);
    out
}

fn resolved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut ends_open = false;
    for segment in path.split('/').skip(1) {
        ends_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            _ => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    if ends_open {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_path_is_one() {
        for (written, normal) in [
            ("/", "/"),
            ("*", "*"),
            ("", ""),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a//", "/a/"),
            ("/./a/../b", "/b"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/../../a", "/a"),
            ("/%61/%2e%2E/b", "/b"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2", "/a%2"),
            ("/a%zz%41", "/a%zzA"),
            ("/a%", "/a%"),
            ("/%25%36%31", "/%2561"),
            ("/.well-known/x", "/.well-known/x"),
            ("/ä%C3%a4", "/ä%C3%A4"),
            ("/a%ä", "/a%ä"),
        ] {
            assert_eq!(normalised(written), normal, "{written}");
            assert_eq!(normalised(normal), normal, "{normal}: normal already");
        }
    }
}
