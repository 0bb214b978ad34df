//! The calls that are refused, by the error that the program gets.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::{BackendError, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Each call with the arguments that are refused; no rule means any.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Programs try these and go on without. `clone3` has its flags in memory, where a filter cannot see them; libraries fall back to `clone`.
const UNKNOWN: [c_long; 12] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    // All programs of the machine share the number of its requests.
    libc::SYS_io_setup,
    // Its mode is in memory, too.
    libc::SYS_openat2,
    MEMFD_SECRET,
    STATMOUNT,
    LISTMOUNT,
    FILE_SETATTR,
    LISTNS,
];

// Numbers that `libc` lacks for some architectures. From 424 on they are the same everywhere.
const MEMFD_SECRET: c_long = 447;
const PROCESS_MRELEASE: c_long = 448;
const FCHMODAT2: c_long = 452;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const LSM_SET_SELF_ATTR: c_long = 460;
const OPEN_TREE_ATTR: c_long = 467;
/// It changes the project of a file, by which quotas count.
const FILE_SETATTR: c_long = 469;
const LISTNS: c_long = 470;

/// The newest call that these tables consider, of Linux 6.19.
pub(super) const LAST_KNOWN: u32 = 470;

const FORBIDDEN: &[c_long] = &[
    // Mounts.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    // Namespaces; `clone` and `unshare` have rules of their own.
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    PROCESS_MRELEASE,
    // Files without a path that is checked.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // Parts of the kernel that programs of users do not need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // As writing to `/proc/self/attr`, which is read-only.
    LSM_SET_SELF_ATTR,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS__sysctl, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[c_long] = &[];

/// Flags of `clone` and `unshare`. The flag of a clock's namespace shares its bit with the signal of `clone`.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
const CLONE_NEWTIME: u64 = 0x80;

/// Types are the last bits of the argument; flags are above.
const SOCKET_TYPES: u64 = 0xf;

/// Requests that write into the input of a terminal (the second is `TIOCLINUX`), take the machine's console, or have a driver loaded that
/// reads the terminal.
const TERMINAL: [u64; 4] = [libc::TIOCSTI, 0x541C, libc::TIOCCONS, libc::TIOCSETD];

/// Maximum of semaphores of System V in a set, as Linux had it before 3.19: each takes memory of the kernel, and there may be 32 000 sets.
const MAX_SEMAPHORES: u64 = 250;

/// Protocols of internet sockets, beside the one that the type of the socket has by itself.
const PROTOCOLS: [i32; 4] = [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];

const PERSONALITY_IS_ASKED_FOR: u64 = 0xffff_ffff;

/// Of `chmod` and its kin, each with the argument that is the mode. A file with these bits in a granted folder would have rights of its
/// owner on the machine.
const MODES: [(c_long, u8); 4] =
    [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[(c_long, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_mknod, 1), (libc::SYS_creat, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[(c_long, u8)] = &[];

/// Of `open`, which has a mode where it makes a file: the argument with the flags, before the mode.
const OPENS: &[(c_long, u8)] = &[(libc::SYS_openat, 2)];
#[cfg(target_arch = "x86_64")]
const OPENS_HERE: &[(c_long, u8)] = &[(libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS_HERE: &[(c_long, u8)] = &[];

/// Flags of `open` with which it makes a file; the second is one without a name, which a link gives it.
const MAKE_FILES: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

pub(super) fn unknown() -> Rules {
    UNKNOWN.into_iter().map(|call| (call, Vec::new())).collect()
}

pub(super) fn forbidden() -> Result<Rules, BackendError> {
    let mut rules: Rules = [FORBIDDEN, FORBIDDEN_HERE].into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    let flags = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    let has = |flag: u64| SeccompRule::new(vec![has_bits(0, flag, flag)?]);
    let mut namespaces = flags.into_iter().map(has).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, namespaces.clone());
    namespaces.push(has(CLONE_NEWTIME)?);
    rules.insert(libc::SYS_unshare, namespaces);
    let requests = TERMINAL.map(|request| SeccompRule::new(vec![is(1, request)?]));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    let changes = SeccompRule::new(vec![is_not(0, 0)?, is_not(0, PERSONALITY_IS_ASKED_FOR)?])?;
    rules.insert(libc::SYS_personality, vec![changes]);
    let raw = |family: i32| {
        SeccompRule::new(vec![is(0, number(family))?, has_bits(1, SOCKET_TYPES, number(libc::SOCK_RAW))?])
    };
    rules.insert(libc::SYS_socket, vec![raw(libc::AF_INET)?, raw(libc::AF_INET6)?]);
    let large_set = SeccompCondition::new(1, Dword, SeccompCmpOp::Gt, MAX_SEMAPHORES)?;
    rules.insert(libc::SYS_semget, vec![SeccompRule::new(vec![large_set])?]);
    rules.extend(modes()?);
    Ok(rules)
}

/// No file gets the bits by which others have the rights of its owner or group.
fn modes() -> Result<Rules, BackendError> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let mut rules = Rules::new();
    for (call, mode) in MODES.iter().chain(MODES_HERE) {
        let with = bits.map(|bit| SeccompRule::new(vec![has_bits(*mode, bit, bit)?]));
        rules.insert(*call, with.into_iter().collect::<Result<_, _>>()?);
    }
    for (call, flags) in OPENS.iter().chain(OPENS_HERE) {
        let with = MAKE_FILES.into_iter().flat_map(|makes| bits.map(|bit| (number(makes), bit)));
        let with = with.map(|(makes, bit)| {
            SeccompRule::new(vec![has_bits(*flags, makes, makes)?, has_bits(*flags + 1, bit, bit)?])
        });
        rules.insert(*call, with.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// Of all families, programs need Unix sockets, internet sockets, and the kernel's sockets about interfaces and routes.
pub(super) fn other_sockets() -> Result<Rules, BackendError> {
    let known = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = known.into_iter().map(|family| is_not(0, number(family))).collect::<Result<_, _>>()?;
    let netlink = vec![is(0, number(libc::AF_NETLINK))?, is_not(2, number(libc::NETLINK_ROUTE))?];
    let rules = vec![SeccompRule::new(others)?, SeccompRule::new(netlink)?];
    Ok([(libc::SYS_socket, rules)].into())
}

/// Programs need TCP, UDP and ICMP. Other protocols of the internet load drivers of the kernel that nobody uses.
pub(super) fn other_protocols() -> Result<Rules, BackendError> {
    let other = |family: i32| {
        let known = [0].into_iter().chain(PROTOCOLS).map(|protocol| is_not(2, number(protocol)));
        let conditions = [is(0, number(family))].into_iter().chain(known).collect::<Result<Vec<_>, _>>()?;
        SeccompRule::new(conditions)
    };
    Ok([(libc::SYS_socket, vec![other(libc::AF_INET)?, other(libc::AF_INET6)?])].into())
}

fn number(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, value)
}

fn has_bits(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(mask), value)
}
