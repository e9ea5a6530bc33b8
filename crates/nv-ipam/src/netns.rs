//! Whether a path names the network namespace that this program runs in.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A path that cannot be read counts as another namespace, as it may be gone. An error concerns the own namespace.
pub fn is_own(path: &str) -> std::io::Result<bool> {
    let Ok(given) = fs::metadata(path) else {
        return Ok(false);
    };
    let own = fs::metadata("/proc/thread-self/ns/net")?;
    Ok((given.dev(), given.ino()) == (own.dev(), own.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_is_our_own() {
        assert!(is_own("/proc/self/ns/net").unwrap());
        assert!(!is_own("/proc/self/ns/mnt").unwrap());
        assert!(!is_own("/no/such/netns").unwrap());
        assert!(!is_own("").unwrap());
    }
}
