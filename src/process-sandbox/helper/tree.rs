//! What of the machine is in every sandbox.

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
pub(super) const HIDDEN_IN_PROC: [&str; 8] =
    ["kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "sysrq-trigger"];
