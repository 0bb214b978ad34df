//! Programs that try to reach servers that the policy does not allow.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Program, Servers, run_without_network, within_namespaces};

const SCRIPTS: &[(&str, &str, &str)] = &[
    (
        "addresses that are not public",
        "
for address in [PRIVATE, ('169.254.169.254', 80), ('192.168.1.1', 80), ('224.0.0.1', 80), ('255.255.255.255', 80)]:
    print(outcome(socket.socket().connect, address), end=' ')
for address in ['::ffff:10.9.8.7', '64:ff9b::a09:807', '::10.9.8.7', 'fe80::1', '2002:a09:807::1']:
    print(outcome(socket.socket(socket.AF_INET6).connect, (address, PRIVATE[1])), end=' ')",
        "EACCES EACCES EACCES EACCES EACCES EACCES EACCES EACCES EACCES EACCES ",
    ),
    (
        "the gateway's loopback in every spelling",
        "
for address in ['127.0.0.1', '127.1.2.3', '0.0.0.0', '192.0.2.1']:
    print(outcome(socket.socket().connect, (address, LOOPBACK[1])), end=' ')
for address in ['::1', '::', '::ffff:127.0.0.1', '::ffff:0.0.0.0']:
    print(outcome(socket.socket(socket.AF_INET6).connect, (address, LOOPBACK[1])), end=' ')",
        "ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED ",
    ),
    (
        "a name that is at a private address, and one whose address changes",
        "
print(outcome(socket.create_connection, ('private.test', PRIVATE[1])))
print(outcome(socket.create_connection, ('loopback.test', LOOPBACK[1])))
print(socket.gethostbyname('rebind.test'), outcome(socket.create_connection, ('rebind.test', PRIVATE[1])))",
        "EACCES\nECONNREFUSED\n203.0.113.7 EACCES\n",
    ),
    (
        "again after a connection, and after it was ended",
        "
libc = __import__('ctypes').CDLL(None); s = socket.socket(); s.connect(PUBLIC); print(outcome(s.connect, PRIVATE))
print(libc.connect(s.fileno(), bytes(16), 16), outcome(s.connect, PRIVATE), outcome(s.connect, LOOPBACK))",
        "EACCES\n0 EACCES ECONNREFUSED\n",
    ),
    (
        "datagrams",
        "
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(outcome(u.sendto, b'x', PUBLIC), outcome(u.connect, PUBLIC), outcome(u.sendmsg, [b'x'], [], 0, ('8.8.8.8', 53)))
print(outcome(u.sendto, b'x', LOOPBACK), u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1), outcome(u.sendto, b'x', ('255.255.255.255', 67)))",
        "ENETUNREACH ENETUNREACH ENETUNREACH\n1 None ENETUNREACH\n",
    ),
    (
        "other sorts of sockets",
        "
for arguments in [(socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_PACKET, socket.SOCK_RAW),
        (socket.AF_VSOCK, socket.SOCK_STREAM), (38, socket.SOCK_SEQPACKET), (socket.AF_NETLINK, socket.SOCK_RAW, 4),
        (socket.AF_NETLINK, socket.SOCK_RAW, 16), (socket.AF_INET, socket.SOCK_STREAM, 132), (socket.AF_INET, socket.SOCK_STREAM, 262),
        (socket.AF_INET, socket.SOCK_SEQPACKET, 132), (socket.AF_INET, 10)]:
    print(outcome(socket.socket, *arguments), end=' ')",
        "EPERM EPERM EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EPROTONOSUPPORT EPROTONOSUPPORT EPROTONOSUPPORT EPROTONOSUPPORT EPERM EPERM ",
    ),
    (
        "a connection by sending",
        "
for s, send in [(s, f) for f in (lambda s: s.sendto(b'x', 0x20000000, PRIVATE), lambda s: s.sendmsg([b'x'], [], 0x20000000, PRIVATE),
        lambda s: s.sendto(b'x', PRIVATE)) for s in [socket.socket()]]:
    print(outcome(send, s), outcome(s.getpeername))",
        "ENOTSUP ENOTCONN\nENOTSUP ENOTCONN\nEPIPE ENOTCONN\n",
    ),
    (
        "another way to an address",
        "
s = socket.socket(); t = socket.socket(socket.AF_INET6)
for s, level, option, value in [(s, 1, 25, b'lo'), (s, 1, 62, 1), (s, 0, 4, bytes([131, 7, 4, 10, 9, 8, 7, 0])), (t, 41, 57, bytes(8)), (s, 6, 31, b'smc'), (s, 6, 30, 1)]:
    print(outcome(s.setsockopt, level, option, value), end=' ')",
        "EPERM EPERM EPERM EPERM EPERM EPERM ",
    ),
    (
        "interfaces of the machine",
        "
import fcntl
t = socket.socket(); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); request = b'lo'.ljust(40, b'\\0')
print(outcome(fcntl.ioctl, t, 0x8915, request), socket.inet_ntoa(fcntl.ioctl(u, 0x8915, request)[20:24]))
t.connect(PUBLIC); print(outcome(fcntl.ioctl, t, 0x8912, request), outcome(fcntl.ioctl, t, 0x894c, 0))
print(struct.unpack('i', fcntl.ioctl(t, 0x541b, bytes(4))), outcome(fcntl.ioctl, 0, 0x8915, request))",
        "ENODEV 127.0.0.1\nENODEV ENODEV\n(0,) ENOTSOCK\n",
    ),
    (
        "calls that no filter knows",
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in [425, 0x40000000 | 41, 0x40000000 | 42]:
    print(libc.syscall(number, 2, 1, 0), errno.errorcode[ctypes.get_errno()], end=' ')",
        "-1 ENOSYS -1 ENOSYS -1 ENOSYS ",
    ),
    (
        "malformed calls",
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True); s = socket.socket().detach()
address = struct.pack('=H', 2) + struct.pack('>H', 80) + bytes([10, 9, 8, 7]) + bytes(120)
for fd, at, length in [(s, 0, 16), (s, address, 15), (s, address, 129), (s, address, -1), (s, address, 128), (-1, address, 16),
        (999, address, 16), (0, address, 16), (s, b'', 0), (s, b'\\1\\0/x', 4)]:
    print(libc.connect(fd, at, length), errno.errorcode[ctypes.get_errno()], end=' ')",
        "-1 EFAULT -1 EINVAL -1 EINVAL -1 EINVAL -1 EACCES -1 EBADF -1 EBADF -1 ENOTSOCK -1 EINVAL -1 EAFNOSUPPORT ",
    ),
    (
        "a descriptor that is replaced while it connects",
        "
stop = False
def replace():
    while not stop:
        n = socket.socket(); os.dup2(n.fileno(), 200); n.close()
        try: os.close(200)
        except OSError: pass
threading.Thread(target=replace).start(); seen = set(); rounds = 0; sys.setswitchinterval(1e-6)
import ctypes; libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack('=H', 2) + struct.pack('>H', PRIVATE[1]) + bytes([10, 9, 8, 7]) + bytes(8)
while rounds < 2000 or len(seen) < 2 and rounds < 200000:
    libc.connect(200, address, 16); seen.add(errno.errorcode[ctypes.get_errno()]); rounds += 1
stop = True; print(sorted(seen))",
        "['EACCES', 'EBADF']\n",
    ),
    (
        "an address that changes while it is checked",
        "
import ctypes, collections
libc = ctypes.CDLL(None, use_errno=True); stop = False
def pack(host, port): return struct.pack('=H', 2) + struct.pack('>H', port) + socket.inet_aton(host) + bytes(8)
good, bad = pack(*PUBLIC), pack(*PRIVATE); buffer = ctypes.create_string_buffer(good, 16)
def change():
    while not stop: ctypes.memmove(buffer, bad, 16); ctypes.memmove(buffer, good, 16)
thread = threading.Thread(target=change); thread.start(); sys.setswitchinterval(1e-6); seen = collections.Counter()
for _ in range(10000):
    s = socket.socket(); s.setblocking(False); seen[libc.connect(s.fileno(), buffer, 16) and errno.errorcode[ctypes.get_errno()]] += 1
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
stop = True; thread.join(); print(set(seen) <= {0, 'EINPROGRESS', 'EACCES', 'EADDRNOTAVAIL'}, seen['EACCES'] > 0, seen['EINPROGRESS'] > 0)",
        "True True True\n",
    ),
    (
        "a socket of TCP in the place of a UNIX socket while the call is checked",
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True); stop = False
internet = struct.pack('=H', 2) + struct.pack('>H', PRIVATE[1]) + bytes([10, 9, 8, 7]) + bytes(8)
anywhere = struct.pack('=H', 2) + bytes(14); unix = b'\\1\\0/no/such/sock\\0'
buffer = ctypes.create_string_buffer(unix, 16); u = socket.socket(socket.AF_UNIX); bound = 0
def change():
    while not stop:
        t = socket.socket(); os.dup2(t.fileno(), 200); ctypes.memmove(buffer, internet, 16); ctypes.memmove(buffer, anywhere, 16)
        os.dup2(u.fileno(), 200); ctypes.memmove(buffer, unix, 16)
thread = threading.Thread(target=change); thread.start(); sys.setswitchinterval(1e-6)
for _ in range(20000): libc.connect(200, buffer, 16); libc.bind(200, buffer, 16); libc.listen(200, 1)
stop = True; thread.join(); print('ended')",
        "ended\n",
    ),
];

#[test]
fn a_program_reaches_nothing_that_the_policy_does_not_allow() {
    within_namespaces("hostile::a_program_reaches_nothing_that_the_policy_does_not_allow", async |policy| {
        let servers = Servers::start();
        for (attempt, script, expected) in SCRIPTS {
            assert_eq!(&servers.run_python(&policy, script).await, expected, "{attempt}");
            servers.assert_nothing_else_was_reached();
        }
        assert!(servers.public.connections.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn a_program_without_network_has_its_loopback_only() {
    within_namespaces("hostile::a_program_without_network_has_its_loopback_only", async |_policy| {
        let servers = Servers::start();
        let script = "
for address in [PUBLIC, PRIVATE, LOOPBACK]: print(outcome(socket.create_connection, address), end=' ')
print(outcome(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1), outcome(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM))
server = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(server.getsockname()); server.accept()[0].sendall(b'x'); print(s.recv(1))";
        let expected = "ENETUNREACH ENETUNREACH ECONNREFUSED EPERM EAFNOSUPPORT\nb'x'\n";
        assert_eq!(run_without_network(&servers, script), expected);
        servers.assert_nothing_else_was_reached();
    });
}

#[test]
fn abstract_sockets_of_the_machine_are_not_there() {
    within_namespaces("hostile::abstract_sockets_of_the_machine_are_not_there", async |policy| {
        let address = SocketAddr::from_abstract_name("sekisho-test-of-the-machine").unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let script = "print(outcome(socket.socket(socket.AF_UNIX).connect, '\\0sekisho-test-of-the-machine'))";
        assert_eq!(Servers::start().run_python(&policy, script).await, "ECONNREFUSED\n");
        assert!(listener.accept().is_err());
    });
}

#[test]
fn nothing_is_left_of_a_program_that_is_killed_while_it_connects() {
    within_namespaces("hostile::nothing_is_left_of_a_program_that_is_killed_while_it_connects", async |policy| {
        let servers = Servers::start();
        let (descriptors, threads) = (count("fd"), count("task"));
        // Its queue is full, so that further connections wait.
        let script = "
full = socket.socket(); full.bind(('127.0.0.1', 0)); full.listen(0)
def one():
    s = socket.socket(); s.connect(full.getsockname())
for n in range(50): threading.Thread(target=one, daemon=True).start()
time.sleep(0.5); print(threading.active_count() > 20); sys.stdout.flush(); time.sleep(60)";
        let mut program = servers.start_python(&policy, script);
        assert_eq!(program.first_line(), "True");
        let Program { mut process, supervisor } = program;
        process.kill().unwrap();
        process.wait().unwrap();
        drop(process);
        // Its thread ends with the program, without being told.
        until(|| count("task") <= threads).await;
        drop(supervisor);
        until(|| count("fd") <= descriptors).await;
    });
}

fn count(of: &str) -> usize {
    fs::read_dir(format!("/proc/self/{of}")).unwrap().count()
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come");
}
