//! What of the machine is in every sandbox.

use std::path::Path;

use crate::packages::FOLDER;

/// Programs and libraries, read-only.
pub(crate) const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// Of `/etc`: what libraries read. No keys, no passwords, no configuration of services.
pub(super) const ETC: [&str; 61] = [
    "ImageMagick-6",
    "ImageMagick-7",
    "R",
    "alternatives",
    "bash.bashrc",
    "bindresvport.blacklist",
    "ca-certificates",
    "ca-certificates.conf",
    "chromium",
    "chromium-browser",
    "chromium.d",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "environment",
    "ethertypes",
    "firefox",
    "firefox-esr",
    "fonts",
    "gai.conf",
    "ghostscript",
    "host.conf",
    "hosts",
    "inputrc",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libreoffice",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "odbcinst.ini",
    "opt/chrome",
    "os-release",
    "perl",
    "pip.conf",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "redhat-release",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "texmf",
    "timezone",
];

/// Files of `/etc` that are written for the program.
const WRITTEN_ETC: [&str; 3] = ["passwd", "group", "resolv.conf"];

/// Folders that no entry can grant; a sandbox has some of its own.
const SPECIAL: [&str; 4] = ["/dev", "/proc", "/sys", FOLDER];

/// Folders that a sandbox has for itself. An entry can grant the machine's files below them.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Whether a path belongs to what every program has, so that nobody needs to grant it: files of the system, and folders of its own.
#[must_use]
pub fn is_in_every_sandbox(path: &Path) -> bool {
    let is_of_etc = |path: &Path| {
        let mut names = ETC.iter().chain(&WRITTEN_ETC).map(Path::new);
        names.any(|name| path.starts_with(name) || name.starts_with(path))
    };
    let mut folders = SYSTEM.iter().chain(&SPECIAL).map(Path::new);
    folders.any(|folder| path.starts_with(folder) || folder.starts_with(path))
        || TEMPORARY.iter().any(|folder| Path::new(folder).starts_with(path))
        || path.strip_prefix("/etc").is_ok_and(is_of_etc)
}

pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Links of `/dev`, each with its target.
pub(super) const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Of `/proc`: what says something about the machine rather than the sandbox.
pub(super) const HIDDEN_IN_PROC: [&str; 20] = [
    "allocinfo",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "pagetypeinfo",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_in_every_sandbox_and_those_of_users_and_services_are_not() {
        let own = [
            "/",
            "/usr/lib/x",
            "/sekisho-packages/node_modules/a",
            "/nix",
            "/etc",
            "/etc/ssl",
            "/etc/ssl/certs/a.pem",
            "/etc/passwd",
            "/tmp",
            "/var",
        ];
        for path in own {
            assert!(is_in_every_sandbox(Path::new(path)), "{path}");
        }
        for path in ["/etc/shadow", "/etc/ssl/private", "/root", "/home/ann/.ssh", "/var/lib", "/tmp/x", "/usrlocal"] {
            assert!(!is_in_every_sandbox(Path::new(path)), "{path}");
        }
    }
}
