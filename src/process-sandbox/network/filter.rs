//! The seccomp filters: which calls about sockets the kernel refuses, which the gateway answers, and which pass.
//!
//! A filter is a program of classic BPF over the number and the arguments of a call. It is written here step by step,
//! since seccompiler has no action that notifies. It cannot read memory, so that calls with an address are notified whatever
//! their socket is. Every other call passes without delay.

use std::error::Error;
use std::io;
use std::mem::offset_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use libc::{seccomp_data, sock_filter, sock_fprog};

use super::files;

/// The gateway's part of a process with a filter.
#[derive(Debug)]
pub struct Installed {
    /// Where the gateway is asked.
    pub listener: OwnedFd,
    /// Whether Landlock forbids every bind and connect of TCP that the program executes itself. A call on a UNIX socket
    /// is executed by the program, and a thread could put a socket of TCP in its place after the check: without Landlock,
    /// such calls are refused.
    pub tcp_forbidden: bool,
}

/// Installs the filter by which the gateway makes the TCP sockets of this process and answers `bind`, `listen` and
/// `connect`; of a process that is observed, it hears of calls with a path, too. Called just before the program is executed,
/// after `no_new_privs`.
/// Errors: when the kernel has no notifications of seccomp, or another filter has a listener.
pub fn install_listener(is_observed: bool) -> io::Result<Installed> {
    let tcp_forbidden = forbid_native_tcp().is_ok();
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With it, a signal does not interrupt a call that is being answered, which Go sends to itself a hundred times a second.
    let killable = flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let recorded: Vec<_> = if is_observed { files::numbers().collect() } else { Vec::new() };
    let program = program(&steps(NOTIFY, &recorded));
    let listener = match install(&program, killable) {
        // Linux before 5.19.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(&program, flags)?,
        installed => installed?,
    };
    #[expect(unsafe_code, reason = "the kernel gave a number")]
    // SAFETY: the kernel opened the descriptor in the call above.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    Ok(Installed { listener, tcp_forbidden })
}

/// Installs the filter for a program without connections: it has the loopback of its own network namespace.
/// Errors: when the kernel has no filters.
pub fn install_none() -> io::Result<()> {
    install(&program(&steps(ALLOW, &[])), 0).map(drop)
}

/// A Landlock domain without rules for TCP. Needs Linux 6.7.
fn forbid_native_tcp() -> Result<(), Box<dyn Error>> {
    let domain = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let domain = domain.handle_access(AccessNet::from_all(ABI::V4))?.handle_access(AccessFs::Refer)?.create()?;
    // Without a rule, every domain forbids to move or link a file into another folder.
    domain.add_rule(PathBeneath::new(PathFd::new("/")?, AccessFs::Refer))?.restrict_self()?;
    Ok(())
}

fn install(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<RawFd> {
    let len = program.len().try_into().map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "there is no safe wrapper for this call")]
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&program)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { RawFd::try_from(answer).map_err(io::Error::other) }
}

/// The kernel's answer to a call.
type Action = u32;

const ALLOW: Action = libc::SECCOMP_RET_ALLOW;
const NOTIFY: Action = libc::SECCOMP_RET_USER_NOTIF;

const fn refuse(errno: i32) -> Action {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

/// A part of a filter. The loaded number is kept until the next `Load`.
enum Step {
    /// Loads 32 bits at an offset of `seccomp_data`.
    Load(usize),
    /// Keeps the bits of the mask.
    Mask(u32),
    /// Where the loaded number is this one, these steps, which end with `Return`.
    When(u32, Vec<Step>),
    /// Where it is at least this one.
    WhenAtLeast(u32, Vec<Step>),
    /// Where it has one of these bits.
    WhenBits(u32, Vec<Step>),
    Return(Action),
}

use Step::{Load, Mask, Return, When, WhenAtLeast, WhenBits};

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// Numbers of x86-64's second interface (x32), of which the same calls have other numbers.
const X32: u32 = 0x4000_0000;

/// The filter; `inet` is the action for sockets of TCP and for calls with an address. The gateway hears of the calls with the
/// numbers in `recorded`.
fn steps(inet: Action, recorded: &[libc::c_long]) -> Vec<Step> {
    vec![
        Load(offset_of!(seccomp_data, arch)),
        When(NATIVE, checked_calls(inet, recorded)),
        // A program for another architecture has other numbers for the same calls.
        Return(refuse(libc::ENOSYS)),
    ]
}

fn checked_calls(inet: Action, recorded: &[libc::c_long]) -> Vec<Step> {
    let with_address = || vec![Return(inet)];
    let mut steps = vec![
        Load(offset_of!(seccomp_data, nr)),
        WhenAtLeast(X32, vec![Return(refuse(libc::ENOSYS))]),
        call(libc::SYS_socket, socket(inet)),
        call(libc::SYS_bind, with_address()),
        call(libc::SYS_listen, with_address()),
        call(libc::SYS_connect, with_address()),
        call(libc::SYS_sendto, send_to(inet)),
        call(libc::SYS_sendmsg, without_fast_open(2)),
        call(libc::SYS_sendmmsg, without_fast_open(3)),
        call(libc::SYS_setsockopt, setsockopt()),
        call(libc::SYS_ioctl, ioctl(inet)),
        // It executes calls of sockets that no filter sees.
        call(libc::SYS_io_uring_setup, vec![Return(refuse(libc::ENOSYS))]),
    ];
    steps.extend(recorded.iter().map(|number| call(*number, vec![Return(NOTIFY)])));
    steps.push(Return(ALLOW));
    steps
}

fn call(number: libc::c_long, steps: Vec<Step>) -> Step {
    // No call has a larger number; this one would never match.
    When(u32::try_from(number).unwrap_or(u32::MAX), steps)
}

/// The lower half of an argument: the kernel reads no more of a number of type `int`.
const fn argument(index: usize) -> Step {
    let half = if cfg!(target_endian = "big") { 4 } else { 0 };
    Load(offset_of!(seccomp_data, args) + 8 * index + half)
}

const fn upper_half(index: usize) -> Step {
    let half = if cfg!(target_endian = "big") { 0 } else { 4 };
    Load(offset_of!(seccomp_data, args) + 8 * index + half)
}

const fn unsigned(number: i32) -> u32 {
    number.unsigned_abs()
}

/// The families that belong to a network namespace, and in these no raw sockets. AF_VSOCK, for example, does not.
fn socket(tcp: Action) -> Vec<Step> {
    let internet = || {
        vec![
            argument(1),
            // Flags such as SOCK_NONBLOCK are above.
            Mask(0xf),
            When(unsigned(libc::SOCK_STREAM), vec![Return(tcp)]),
            When(unsigned(libc::SOCK_DGRAM), vec![Return(ALLOW)]),
            Return(refuse(libc::EPERM)),
        ]
    };
    let netlink = vec![
        argument(2),
        When(unsigned(libc::NETLINK_ROUTE), vec![Return(ALLOW)]),
        Return(refuse(libc::EPROTONOSUPPORT)),
    ];
    vec![
        argument(0),
        When(unsigned(libc::AF_UNIX), vec![Return(ALLOW)]),
        When(unsigned(libc::AF_INET), internet()),
        When(unsigned(libc::AF_INET6), internet()),
        When(unsigned(libc::AF_NETLINK), netlink),
        Return(refuse(libc::EAFNOSUPPORT)),
    ]
}

/// Calls that send connect with this flag. Its users send again without it.
fn without_fast_open(flags: usize) -> Vec<Step> {
    vec![argument(flags), WhenBits(unsigned(libc::MSG_FASTOPEN), vec![Return(refuse(libc::EOPNOTSUPP))]), Return(ALLOW)]
}

/// With an address, it is recorded. Data of connections has none.
fn send_to(with_address: Action) -> Vec<Step> {
    let recorded = || vec![Return(with_address)];
    vec![
        argument(3),
        WhenBits(unsigned(libc::MSG_FASTOPEN), vec![Return(refuse(libc::EOPNOTSUPP))]),
        argument(4),
        WhenAtLeast(1, recorded()),
        upper_half(4),
        WhenAtLeast(1, recorded()),
        Return(ALLOW),
    ]
}

// Options of sockets that `libc` has for Android only.
const SO_ATTACH_FILTER: i32 = 26;
const SO_ATTACH_BPF: i32 = 50;
const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
const SO_ATTACH_REUSEPORT_EBPF: i32 = 52;
const SO_BINDTOIFINDEX: i32 = 62;

/// Options that send packets by another way than to the address that was checked, and filters of sockets, whose memory all programs of the machine
/// share with the filters of calls.
fn setsockopt() -> Vec<Step> {
    const OPTIONS: [(i32, &[i32]); 4] = [
        (
            libc::SOL_SOCKET,
            &[
                libc::SO_BINDTODEVICE,
                SO_BINDTOIFINDEX,
                SO_ATTACH_FILTER,
                SO_ATTACH_BPF,
                SO_ATTACH_REUSEPORT_CBPF,
                SO_ATTACH_REUSEPORT_EBPF,
            ],
        ),
        (libc::IPPROTO_IP, &[libc::IP_OPTIONS]),
        (
            libc::IPPROTO_IPV6,
            &[
                libc::IPV6_2292PKTOPTIONS,
                libc::IPV6_HOPOPTS,
                libc::IPV6_RTHDRDSTOPTS,
                libc::IPV6_RTHDR,
                libc::IPV6_DSTOPTS,
            ],
        ),
        (libc::IPPROTO_TCP, &[libc::TCP_ULP, libc::TCP_FASTOPEN_CONNECT]),
    ];
    let level = |(level, options): &(i32, &[i32])| {
        let option = |option: &i32| When(unsigned(*option), vec![Return(refuse(libc::EPERM))]);
        let mut steps = vec![argument(2)];
        steps.extend(options.iter().map(option));
        steps.push(Return(ALLOW));
        When(unsigned(*level), steps)
    };
    let mut steps = vec![argument(1)];
    steps.extend(OPTIONS.iter().map(level));
    steps.push(Return(ALLOW));
    steps
}

/// Requests about the interfaces of a socket's namespace.
fn ioctl(about_interfaces: Action) -> Vec<Step> {
    const FIRST: u32 = 0x8910;
    // With those about radio interfaces, from 0x8b00 on.
    const AFTER: u32 = 0x8c00;
    vec![
        argument(1),
        WhenAtLeast(AFTER, vec![Return(ALLOW)]),
        WhenAtLeast(FIRST, vec![Return(about_interfaces)]),
        Return(ALLOW),
    ]
}

fn program(steps: &[Step]) -> Vec<sock_filter> {
    steps.iter().flat_map(instructions).collect()
}

fn instructions(step: &Step) -> Vec<sock_filter> {
    match step {
        Load(offset) => {
            vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, u32::try_from(*offset).unwrap_or(u32::MAX))]
        }
        Mask(mask) => vec![instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, *mask)],
        When(value, inner) => condition(libc::BPF_JEQ, *value, inner),
        WhenAtLeast(value, inner) => condition(libc::BPF_JGE, *value, inner),
        WhenBits(bits, inner) => condition(libc::BPF_JSET, *bits, inner),
        Return(action) => vec![instruction(libc::BPF_RET | libc::BPF_K, *action)],
    }
}

/// A test, over the steps that are left out where it fails.
fn condition(test: u32, value: u32, inner: &[Step]) -> Vec<sock_filter> {
    let inner = program(inner);
    let mut program = match u8::try_from(inner.len()) {
        Ok(skipped) => vec![sock_filter { jf: skipped, ..instruction(libc::BPF_JMP | test | libc::BPF_K, value) }],
        // Too far for a conditional jump.
        Err(_) => vec![
            sock_filter { jt: 1, ..instruction(libc::BPF_JMP | test | libc::BPF_K, value) },
            instruction(libc::BPF_JMP | libc::BPF_JA, u32::try_from(inner.len()).unwrap_or(u32::MAX)),
        ],
    };
    program.extend(inner);
    program
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes a filter as the kernel does.
    fn answer(program: &[sock_filter], arch: u32, call: libc::c_long, args: &[u64]) -> Action {
        let mut data = [0; size_of::<seccomp_data>()];
        data[..4].copy_from_slice(&u32::try_from(call).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        for (index, value) in args.iter().enumerate() {
            data[16 + 8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
        }
        let (mut at, mut loaded) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let is = |test: u32| u32::from(code) == libc::BPF_JMP | test | libc::BPF_K;
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => loaded &= k,
                code if code == libc::BPF_JMP | libc::BPF_JA => at += usize::try_from(k).unwrap(),
                _ if is(libc::BPF_JEQ) => at += jump(loaded == k),
                _ if is(libc::BPF_JGE) => at += jump(loaded >= k),
                _ if is(libc::BPF_JSET) => at += jump(loaded & k != 0),
                _ => loaded = u32::from_ne_bytes(data[usize::try_from(k).unwrap()..][..4].try_into().unwrap()),
            }
        }
    }

    fn argument_of(number: i32) -> u64 {
        // The kernel ignores the upper half.
        0xdead_beef_0000_0000 | u64::from(number.unsigned_abs())
    }

    #[test]
    fn calls_are_answered_by_their_arguments() {
        let program = program(&steps(NOTIFY, &[]));
        let (inet, inet6, stream) = (libc::AF_INET, libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
        for (call, args, expected) in [
            (libc::SYS_read, [0; 4], ALLOW),
            (libc::SYS_socket, [inet, stream, 0, 0], NOTIFY),
            (libc::SYS_socket, [inet6, stream, libc::IPPROTO_MPTCP, 0], NOTIFY),
            (libc::SYS_socket, [inet, libc::SOCK_DGRAM, 0, 0], ALLOW),
            (libc::SYS_socket, [inet6, libc::SOCK_RAW, 0, 0], refuse(libc::EPERM)),
            (libc::SYS_socket, [libc::AF_UNIX, stream, 0, 0], ALLOW),
            (libc::SYS_socket, [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, 0], ALLOW),
            (
                libc::SYS_socket,
                [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT, 0],
                refuse(libc::EPROTONOSUPPORT),
            ),
            (libc::SYS_socket, [libc::AF_VSOCK, stream, 0, 0], refuse(libc::EAFNOSUPPORT)),
            (libc::SYS_connect, [3, 0, 16, 0], NOTIFY),
            (libc::SYS_bind, [3, 0, 16, 0], NOTIFY),
            (libc::SYS_listen, [3, 1, 0, 0], NOTIFY),
            (libc::SYS_sendto, [3, 0, 1, libc::MSG_NOSIGNAL], ALLOW),
            (libc::SYS_sendto, [3, 0, 1, libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL], refuse(libc::EOPNOTSUPP)),
            (libc::SYS_sendmsg, [3, 0, libc::MSG_FASTOPEN, 0], refuse(libc::EOPNOTSUPP)),
            (libc::SYS_sendmmsg, [3, 0, 1, libc::MSG_FASTOPEN], refuse(libc::EOPNOTSUPP)),
            (libc::SYS_setsockopt, [3, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0], ALLOW),
            (libc::SYS_setsockopt, [3, libc::IPPROTO_TCP, libc::TCP_ULP, 0], refuse(libc::EPERM)),
            (libc::SYS_setsockopt, [3, libc::IPPROTO_IP, libc::IP_OPTIONS, 0], refuse(libc::EPERM)),
            (libc::SYS_setsockopt, [3, libc::SOL_SOCKET, libc::IP_OPTIONS, 0], ALLOW),
            (libc::SYS_setsockopt, [3, libc::SOL_SOCKET, SO_ATTACH_FILTER, 0], refuse(libc::EPERM)),
            (libc::SYS_setsockopt, [3, libc::SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, 0], refuse(libc::EPERM)),
            (libc::SYS_ioctl, [3, 0x5401, 0, 0], ALLOW),
            (libc::SYS_ioctl, [3, 0x8912, 0, 0], NOTIFY),
            (libc::SYS_ioctl, [3, 0x8b1b, 0, 0], NOTIFY),
            (libc::SYS_ioctl, [3, 0x8c00, 0, 0], ALLOW),
            (libc::SYS_io_uring_setup, [1, 0, 0, 0], refuse(libc::ENOSYS)),
        ] {
            let found = answer(&program, NATIVE, call, &args.map(argument_of));
            assert_eq!(found, expected, "call {call} {args:?}");
        }
        let foreign = answer(&program, 0x4000_0003, libc::SYS_read, &[0; 4]);
        assert_eq!(foreign, refuse(libc::ENOSYS), "a call of another architecture");
        assert_eq!(answer(&program, NATIVE, 0x4000_0000, &[0; 4]), refuse(libc::ENOSYS), "x32");
    }

    #[test]
    fn calls_with_a_path_are_heard_of_where_the_program_is_observed() {
        for (recorded, expected) in [(Vec::new(), ALLOW), (files::numbers().collect(), NOTIFY)] {
            let program = program(&steps(NOTIFY, &recorded));
            for number in files::numbers() {
                assert_eq!(answer(&program, NATIVE, number, &[0; 4]), expected, "{number}");
            }
            assert_eq!(answer(&program, NATIVE, libc::SYS_execve, &[0; 4]), ALLOW, "the helper executes it");
        }
    }

    #[test]
    fn only_what_is_sent_to_an_address_is_recorded() {
        let program = program(&steps(NOTIFY, &[]));
        let sent = |flags: i32, address: u64| {
            answer(&program, NATIVE, libc::SYS_sendto, &[3, 0, 1, argument_of(flags), address, 16])
        };
        assert_eq!(sent(libc::MSG_NOSIGNAL, 0), ALLOW);
        for address in [1, 0x7ffc_0000_0000, u64::MAX] {
            assert_eq!(sent(libc::MSG_NOSIGNAL, address), NOTIFY, "{address:x}");
            assert_eq!(sent(libc::MSG_FASTOPEN, address), refuse(libc::EOPNOTSUPP));
        }
    }

    #[test]
    fn a_condition_over_many_steps_is_left_out_whole() {
        let many = || (0..300).map(|_| Mask(0xff)).chain([Return(1)]).collect();
        for loaded in [0, 1] {
            let program = program(&[Load(0), When(1, many()), Return(2)]);
            assert_eq!(answer(&program, 0, loaded, &[0; 4]), if loaded == 1 { 1 } else { 2 });
        }
    }
}
