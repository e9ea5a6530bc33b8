//! Log rotation at 100 MB: at most five rotated logs are kept, for five days, compressed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::calendar::Moment;
use crate::gzip;
use crate::sys;

pub const MAX_SIZE: u64 = 100 << 20;
const MAX_BACKUPS: usize = 5;
const MAX_AGE_DAYS: i64 = 5;

/// Rename a full log and create a new one with the same mode and owner. Only one of several processes does it.
pub fn rotate(path: &Path, full: &Metadata, now: Moment) -> io::Result<bool> {
    let file = open_itself(path)?;
    if !sys::try_lock(&file) || fs::symlink_metadata(path)?.ino() != full.ino() {
        return Ok(false);
    }
    let (stem, extension) = parts(path);
    fs::rename(path, path.with_file_name(format!("{stem}{}{extension}", now.file_stamp())))?;
    // Another process may have created the new log already.
    match OpenOptions::new().append(true).create_new(true).mode(full.mode() & 0o7777).open(path) {
        Ok(log) => fchown(&log, Some(full.uid()), Some(full.gid()))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// Remove surplus and expired rotated logs, compress the rest.
pub fn look_after(path: &Path, now: Moment) -> io::Result<()> {
    for (number, (moment, backup)) in backups(path)?.into_iter().enumerate() {
        if number >= MAX_BACKUPS || now.day() - moment.day() > MAX_AGE_DAYS {
            remove(&backup)?;
        } else if backup.extension().is_none_or(|extension| extension != "gz") {
            compress(&backup)?;
        }
    }
    Ok(())
}

/// Prefix and suffix around the time in the name of a rotated log.
fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    (format!("{stem}-"), extension.unwrap_or_default())
}

/// The rotated logs, newest first.
fn backups(path: &Path) -> io::Result<Vec<(Moment, PathBuf)>> {
    let (stem, extension) = parts(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut backups = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let stamp = plain.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&extension));
        let moment = stamp.and_then(Moment::from_file_stamp);
        if let Some(moment) = moment.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) {
            backups.push((moment, entry.path()));
        }
    }
    backups.sort_by_key(|(moment, _)| std::cmp::Reverse((moment.seconds, moment.nanos)));
    Ok(backups)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Open a file to read, but not what a symbolic link of its name points to.
fn open_itself(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(sys::O_NOFOLLOW | sys::O_NONBLOCK).open(path)
}

/// Compress a rotated log, unless another process is doing so.
fn compress(path: &Path) -> io::Result<()> {
    let mut source = match open_itself(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if !sys::try_lock(&source) {
        return Ok(());
    }
    let mut name = path.as_os_str().to_os_string();
    name.push(".gz");
    let target = PathBuf::from(name);
    let part = target.with_extension("part");
    let about = source.metadata()?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(about.mode() & 0o7777).custom_flags(sys::O_NOFOLLOW);
    let mut packed = options.open(&part)?;
    // A process that opened the log before the rotation may still write to it; its lines become a second gzip member.
    while gzip::compress(&mut source, &mut packed)? > 0 {}
    fchown(&packed, Some(about.uid()), Some(about.gid()))?;
    fs::rename(&part, &target)?;
    remove(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;

    const NOW: Moment = Moment { seconds: 1_704_164_645, nanos: 0 };

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_full_log_is_set_aside_once() {
        let folder = scratch::folder();
        let path = folder.join("cni.log");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let full = fs::symlink_metadata(&path).unwrap();
        assert!(rotate(&path, &full, NOW).unwrap());
        assert!(!rotate(&path, &full, NOW).unwrap());
        assert_eq!(names(&folder), ["cni-2024-01-02T03-04-05.000.log", "cni.log"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn old_logs_are_counted_aged_and_compressed() {
        let folder = scratch::folder();
        let path = folder.join("cni.log");
        for day in [20, 21, 26, 27, 28, 29, 30, 31] {
            fs::write(folder.join(format!("cni-2023-12-{day}T00-00-00.000.log")), "text").unwrap();
        }
        for other in ["cni.log", "cni-2023-12-30T00-00-00.000.txt", "other-2023-12-01T00-00-00.000.log", "cni-x.log"] {
            fs::write(folder.join(other), "").unwrap();
        }
        look_after(&path, NOW).unwrap();
        let left: Vec<String> = names(&folder).into_iter().filter(|name| name.ends_with(".gz")).collect();
        let expected = [28, 29, 30, 31].map(|day| format!("cni-2023-12-{day}T00-00-00.000.log.gz"));
        assert_eq!(left, expected);
        assert_eq!(names(&folder).len(), 8);
        look_after(&path, NOW).unwrap();
        assert_eq!(names(&folder).len(), 8);
    }
}
