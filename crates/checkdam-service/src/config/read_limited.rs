//! Reads files that settings name, up to a maximum size: a device file has no end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// The longest file of settings, certificates or a secret: 1 MiB.
const BYTES_MAX: u64 = 1 << 20;

/// What a file of certificates or of a key holds, which must be a regular one.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    read(checkdam_net::open_regular_file(path)?)
}

fn read(file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::other("it is longer than 1 MiB: name the file that is meant"));
    }
    Ok(bytes)
}

/// What a file of settings or of a secret holds.
pub fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(File::open(path)?)?)
        .map_err(|_| Error::other("it is not UTF-8: name the file that is meant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = read_text(Path::new("/dev/zero")).unwrap_err();
        assert!(refused.to_string().contains("longer than 1 MiB"), "{refused}");
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
        let refused = read_bytes(Path::new("/dev/zero")).unwrap_err();
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
    }
}
