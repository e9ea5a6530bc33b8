//! The log: lines `<time> [<level>] <text>` to standard error and, once it is known, to the log file.
//!
//! A problem with the file is reported on standard error and does not fail the command. No symbolic link is followed to
//! the file, and none at all to a file that must be below `/var/log`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use crate::calendar::Moment;
use crate::rotation;
use crate::sys;

/// Where log files are that the node did not choose.
const LOG_ROOT: &str = "/var/log";

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
    /// The file's folder, as long as paths refer to it.
    folder: Option<File>,
}

impl Log {
    /// A log to standard error only, until a file is set.
    pub fn new() -> Log {
        Log { level: Level::Info, offset_s: None, file: None, upkeep: None, folder: None }
    }

    pub fn set(&mut self, level: &str, path: &str, is_confined: bool) {
        match Level::parse(level) {
            Some(level) => self.level = level,
            None => self.warning(&format!("unknown log level {level:?}, using {:?}", self.level)),
        }
        if self.level > Level::Panic {
            let path = Path::new(path);
            let opened = if is_confined { self.open_below(Path::new(LOG_ROOT), path) } else { self.open(path) };
            if let Err(error) = opened {
                self.warning(&format!("no log file: {}: {error}", path.display()));
            }
        }
    }

    /// Open a file below a folder, whose path has neither `..` nor a symbolic link after the folder.
    fn open_below(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let outside = || io::Error::other(format!("it must be below {}", root.display()));
        let below = path.strip_prefix(root).map_err(|_| outside())?;
        let mut names = Vec::new();
        for part in below.components() {
            match part {
                Component::Normal(name) => names.push(name),
                _ => return Err(outside()),
            }
        }
        let name = names.pop().ok_or_else(outside)?;
        let mut folder = open_folder(root, true)?;
        for name in names {
            folder = open_folder(&inside(&folder).join(name), false)?;
        }
        let path = inside(&folder).join(name);
        // A second name of a file may stand anywhere.
        if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_symlink() && metadata.nlink() > 1) {
            return Err(io::Error::other("it has more than one name"));
        }
        self.open(&path)?;
        self.folder = Some(folder);
        Ok(())
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
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o644).custom_flags(sys::O_NOFOLLOW);
        self.file = Some(options.open(path)?);
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
        let line = format!("{} [{}] {}\n", now.rfc3339(offset_s), level.name(), printable(text));
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

/// The text without control characters, so that nobody can write lines of their own or colour a terminal.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for each in text.chars() {
        if each.is_control() { printable.extend(each.escape_default()) } else { printable.push(each) }
    }
    printable
}

/// A folder, made if it is absent. `is_trusted` is for one whose path may contain symbolic links.
fn open_folder(path: &Path, is_trusted: bool) -> io::Result<File> {
    let flags = sys::O_DIRECTORY | if is_trusted { 0 } else { sys::O_NOFOLLOW };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(is_trusted).mode(0o755).create(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

/// A path to an open folder that stays valid when the folder is renamed or replaced by a link.
fn inside(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
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
        log.set("Warning", path.to_str().unwrap(), false);
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
        log.set("nonsense", folder.join("log").to_str().unwrap(), false);
        assert_eq!(log.level, Level::Info);
    }

    #[test]
    fn links_folders_and_pipes_are_refused() {
        let folder = scratch::folder();
        fs::write(folder.join("target"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("target"), folder.join("link")).unwrap();
        for name in ["link", ".", "target/below"] {
            let mut log = Log::new();
            log.set("info", folder.join(name).to_str().unwrap(), false);
            assert!(log.file.is_none(), "{name}");
        }
        assert_eq!(fs::read(folder.join("target")).unwrap(), b"");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\nb\r\x1b[31m é"), "a\\nb\\r\\u{1b}[31m é");
    }

    #[test]
    fn a_confined_log_stays_below_its_folder() {
        let (root, other) = (scratch::folder(), scratch::folder());
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(other.join("target"), "").unwrap();
        fs::hard_link(other.join("target"), root.join("second")).unwrap();
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        link(&other, "elsewhere");
        link(&other.join("target"), "link");
        link(&root.join("folder"), "alias");
        let refused = ["", "..", "../x", "folder/../../x", "elsewhere/x", "link", "alias/x", "folder", "second"];
        for name in refused {
            let mut log = Log::new();
            assert!(log.open_below(&root, &root.join(name)).is_err(), "{name}");
            assert!(log.file.is_none(), "{name}");
        }
        assert!(Log::new().open_below(&root, &other.join("target")).is_err());
        assert!(Log::new().open_below(&root, Path::new("log")).is_err());
        assert_eq!((names(&other), fs::read(other.join("target")).unwrap()), (vec!["target".to_string()], vec![]));
        for name in ["log", "folder/log", "a/b/log"] {
            let mut log = Log::new();
            log.open_below(&root, &root.join(name)).unwrap();
            log.error("line");
            assert!(fs::read_to_string(root.join(name)).unwrap().contains("line"), "{name}");
        }
    }

    #[test]
    fn a_confined_log_is_rotated_where_it_is() {
        let root = scratch::folder();
        fs::create_dir(root.join("folder")).unwrap();
        let path = root.join("folder/cni.log");
        File::create(&path).unwrap().set_len(rotation::MAX_SIZE).unwrap();
        let mut log = Log::new();
        log.open_below(&root, &path).unwrap();
        log.finish();
        assert_eq!(names(&root.join("folder")).iter().filter(|name| name.ends_with(".log.gz")).count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}
