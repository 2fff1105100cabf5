//! Reads files that settings name, up to a maximum size: a device file has no end.
//!
//! Certificates, keys and tokens are read again when they change, so they must be regular
//! files: a pipe can be read only once, and opening one waits for its writer.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The longest file of settings, certificates or a secret, in bytes.
pub const FILE_MAX: u64 = 1 << 20;

/// What the file contains; an error if it is longer than `bytes_max`.
pub fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    read(File::open(path)?, bytes_max)
}

/// The same of a regular file, also by symbolic links, as Kubernetes mounts secrets.
pub fn read_regular_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a directory: name the file that is meant"));
    }
    if !kind.is_file() {
        let reason = "it is a pipe or a device, as of process substitution, and not a regular file: write it to a file";
        return Err(Error::new(ErrorKind::InvalidInput, reason));
    }
    read(File::open(path)?, bytes_max)
}

/// The contents of a file as text.
pub fn file_text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8: name the file that is meant"))
}

fn read(file: File, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let (count, unit) = if bytes_max < 1 << 20 { (bytes_max >> 10, "KiB") } else { (bytes_max >> 20, "MiB") };
        return Err(Error::other(format!("it is longer than {count} {unit}: name the file that is meant")));
    }
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = |bytes_max| read_file(Path::new("/dev/zero"), bytes_max).unwrap_err().to_string();
        assert!(refused(FILE_MAX).contains("longer than 1 MiB"));
        assert!(refused(64 << 10).contains("longer than 64 KiB"));
        assert!(read_file(Path::new("/dev/null"), FILE_MAX).unwrap().is_empty());
        assert!(file_text(vec![0xff]).unwrap_err().to_string().contains("not UTF-8"));
    }

    #[test]
    fn only_regular_files_and_links_to_them_are_read_as_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let read = |path: &Path| read_regular_file(path, FILE_MAX);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert!(["file", "link"].iter().all(|name| read(&at(name)).unwrap() == b"text"));
        // Opening it would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        for path in [at("pipe"), "/dev/zero".into(), "/dev/null".into()] {
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("not a regular file"), "{path:?}: {refused}");
        }
        assert!(read(folder.path()).unwrap_err().to_string().contains("is a directory"));
        assert_eq!(read(&at("missing")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
