//! The log: lines `<time> [<level>] <text>` to standard error and, once it is known, to the log file.
//!
//! A problem with the file is reported on standard error and does not fail the command.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::calendar::Moment;
use crate::rotation;
use crate::sys;

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Level {
    Panic = 1,
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    pub fn parse(text: &str) -> Option<Level> {
        match text.to_lowercase().as_str() {
            "panic" => Some(Level::Panic),
            "error" => Some(Level::Error),
            "warning" => Some(Level::Warning),
            "info" => Some(Level::Info),
            "debug" | "verbose" => Some(Level::Debug),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Panic => "panic",
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

pub struct Log {
    level: Level,
    offset_s: Option<i64>,
    file: Option<File>,
    /// The file whose rotated copies are cleaned up at the end.
    upkeep: Option<PathBuf>,
}

impl Log {
    /// A log to standard error only, until a file is set.
    pub fn new() -> Log {
        Log { level: Level::Info, offset_s: None, file: None, upkeep: None }
    }

    pub fn set(&mut self, level: &str, path: &str) {
        match Level::parse(level) {
            Some(level) => self.level = level,
            None => self.warning(&format!("unknown log level {level:?}, using {:?}", self.level)),
        }
        if self.level > Level::Panic {
            if let Err(error) = self.open(Path::new(path)) {
                self.warning(&format!("no log file: {path}: {error}"));
            }
        }
    }

    fn open(&mut self, path: &Path) -> io::Result<()> {
        let now = Moment::now();
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => return Err(io::Error::other("it is a symbolic link")),
            Ok(metadata) if !metadata.is_file() && !metadata.file_type().is_char_device() => {
                return Err(io::Error::other("it is not a file"));
            }
            Ok(metadata) => {
                let is_full = metadata.is_file() && metadata.len() >= rotation::MAX_SIZE;
                if is_full && rotation::rotate(path, &metadata, now)? || is_of_another_day(metadata.mtime(), now) {
                    self.upkeep = Some(path.to_path_buf());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
                }
            }
            Err(error) => return Err(error),
        }
        self.file = Some(OpenOptions::new().append(true).create(true).mode(0o644).open(path)?);
        Ok(())
    }

    pub fn error(&mut self, text: &str) {
        self.write(Level::Error, text);
    }

    pub fn warning(&mut self, text: &str) {
        self.write(Level::Warning, text);
    }

    pub fn info(&mut self, text: &str) {
        self.write(Level::Info, text);
    }

    /// The text is formatted only when the level is enabled.
    pub fn debug(&mut self, text: impl FnOnce() -> String) {
        if self.level >= Level::Debug {
            self.write(Level::Debug, &text());
        }
    }

    fn write(&mut self, level: Level, text: &str) {
        if level > self.level {
            return;
        }
        let now = Moment::now();
        let offset_s = *self.offset_s.get_or_insert_with(|| sys::local_offset_s(now.seconds));
        let line = format!("{} [{}] {}\n", now.rfc3339(offset_s), level.name(), text.replace('\n', "\\n"));
        let _ = io::stderr().write_all(line.as_bytes());
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Clean up rotated logs. Called after the result is written, because compression may take a moment.
    pub fn finish(&mut self) {
        if let Some(path) = self.upkeep.take() {
            if let Err(error) = rotation::look_after(&path, Moment::now()) {
                self.warning(&format!("old logs beside {}: {error}", path.display()));
            }
        }
    }
}

fn is_of_another_day(seconds: i64, now: Moment) -> bool {
    Moment { seconds, nanos: 0 }.day() != now.day()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;

    #[test]
    fn lines_of_the_level_and_above_are_written() {
        let folder = scratch::folder();
        let path = folder.join("a/b/log");
        let mut log = Log::new();
        log.set("Warning", path.to_str().unwrap());
        log.error("one");
        log.warning("two\nlines");
        log.info("three");
        log.debug(|| "four".to_string());
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(lines, ["[error] one", "[warning] two\\nlines"]);
    }

    #[test]
    fn levels_have_names() {
        assert_eq!(Level::parse("VERBOSE"), Some(Level::Debug));
        assert_eq!(Level::parse("trace"), None);
        let mut log = Log::new();
        let folder = scratch::folder();
        log.set("nonsense", folder.join("log").to_str().unwrap());
        assert_eq!(log.level, Level::Info);
    }

    #[test]
    fn links_folders_and_pipes_are_refused() {
        let folder = scratch::folder();
        fs::write(folder.join("target"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("target"), folder.join("link")).unwrap();
        for name in ["link", ".", "target/below"] {
            let mut log = Log::new();
            log.set("info", folder.join(name).to_str().unwrap());
            assert!(log.file.is_none(), "{name}");
        }
        assert_eq!(fs::read(folder.join("target")).unwrap(), b"");
    }
}
