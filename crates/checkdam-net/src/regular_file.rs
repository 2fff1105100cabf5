//! Opens files that must be regular ones: certificates, keys and tokens, which are read
//! again when they change. A pipe can be read only once, and opening one waits for its writer.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a regular file, also by symbolic links, as Kubernetes mounts secrets.
pub fn open_regular_file(path: &Path) -> Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a directory: name the file that is meant"));
    }
    if !kind.is_file() {
        let reason = "it is a pipe or a device, as of process substitution, and not a regular file: write it to a file";
        return Err(Error::new(ErrorKind::InvalidInput, reason));
    }
    File::open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_and_links_to_them_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert!(open_regular_file(&at("file")).is_ok() && open_regular_file(&at("link")).is_ok());
        // Opening it would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        for path in [at("pipe"), "/dev/zero".into(), "/dev/null".into()] {
            let refused = open_regular_file(&path).unwrap_err().to_string();
            assert!(refused.contains("not a regular file"), "{path:?}: {refused}");
        }
        assert!(open_regular_file(folder.path()).unwrap_err().to_string().contains("is a directory"));
        assert_eq!(open_regular_file(&at("missing")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
