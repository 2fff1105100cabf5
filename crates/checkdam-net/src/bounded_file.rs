//! Reads files that settings name, up to a maximum size: a device file has no end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// The longest file of settings, certificates or a secret, in bytes.
pub const FILE_MAX: u64 = 1 << 20;

/// What the file contains; an error if it is longer than `bytes_max`.
pub fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let (count, unit) = if bytes_max < 1 << 20 { (bytes_max >> 10, "KiB") } else { (bytes_max >> 20, "MiB") };
        return Err(Error::other(format!("it is longer than {count} {unit}: name the file that is meant")));
    }
    Ok(bytes)
}

/// The same as text.
pub fn read_text_file(path: &Path, bytes_max: u64) -> Result<String> {
    let bytes = read_file(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8: name the file that is meant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = |bytes_max| read_text_file(Path::new("/dev/zero"), bytes_max).unwrap_err().to_string();
        assert!(refused(FILE_MAX).contains("longer than 1 MiB"));
        assert!(refused(64 << 10).contains("longer than 64 KiB"));
        assert_eq!(read_text_file(Path::new("/dev/null"), FILE_MAX).unwrap(), "");
    }
}
