//! A program's own loopback and UNIX sockets, which other programs and the gateway do not see.

use std::net::TcpStream;

use super::{Program, Servers, is_installed, within_namespaces};

const SCRIPTS: &[(&str, &str, &str)] = &[
    (
        "a server and its client",
        "
server = socket.create_server(('127.0.0.1', 0)); address = server.getsockname()
threading.Thread(target=lambda: server.accept()[0].sendall(b'hello')).start()
s = socket.create_connection(address); print(read_all(s), s.getpeername() == address)",
        "hello True\n",
    ),
    (
        "every address of the program",
        "
for family, at in [(socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')]:
    server = socket.create_server((at, 0), family=family); port = server.getsockname()[1]
    for to in ['127.0.0.1', '192.0.2.1', '0.0.0.0'] if family == socket.AF_INET else ['::1', '::', '2001:db8::1', '::ffff:127.0.0.1']:
        if family == socket.AF_INET6 and '.' in to: continue
        s = socket.socket(family); s.settimeout(5); s.connect((to, port)); c = server.accept()[0]
        c.sendall(b'x'); print(s.recv(1).decode(), end=' '); s.close(); c.close()
    server.close()",
        "x x x x x x ",
    ),
    (
        "both families at one socket",
        "
server = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)
s = socket.create_connection(('127.0.0.1', server.getsockname()[1])); print(server.accept()[1][0])",
        "::ffff:127.0.0.1\n",
    ),
    (
        "options of a server",
        "
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setblocking(False)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768); before = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
s.bind(('127.0.0.1', 0)); s.listen(); print(s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR), os.get_blocking(s.fileno()))
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before, os.get_inheritable(s.fileno()))",
        "1 False\nTrue False\n",
    ),
    (
        "a server that was not bound",
        "
server = socket.socket(); server.listen(); s = socket.create_connection(('127.0.0.1', server.getsockname()[1]))
server.accept()[0].sendall(b'hello'); print(s.recv(9))",
        "b'hello'\n",
    ),
    ("no server", "print(outcome(socket.create_connection, ('127.0.0.1', 1)))", "ECONNREFUSED\n"),
    (
        "a port in use",
        "
server = socket.create_server(('127.0.0.1', 0)); s = socket.socket(); print(outcome(s.bind, server.getsockname()))",
        "EADDRINUSE\n",
    ),
    (
        "loopback first, then another machine",
        "
server = socket.create_server(('127.0.0.1', 0)); s = socket.socket(); s.connect(server.getsockname())
libc = __import__('ctypes').CDLL(None); print(libc.connect(s.fileno(), bytes(16), 16)); s.connect(PUBLIC); print(ask(s))",
        "0\npublic\n",
    ),
    (
        "a socket that is in epoll before it connects",
        "
import select
server = socket.create_server(('127.0.0.1', 0)); s = socket.socket(); s.setblocking(False)
events = select.epoll(); events.register(s, select.EPOLLOUT); s.connect_ex(server.getsockname())
print([event for _, event in events.poll(5)]); events.modify(s, select.EPOLLIN)
server.accept()[0].sendall(b'x'); print([event for _, event in events.poll(5)]); events.unregister(s); print(events.poll(0))",
        "[4]\n[1]\n[]\n",
    ),
    (
        "asyncio",
        "
import asyncio
async def main():
    async def serve(reader, writer): writer.write(await reader.readline()); writer.close()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'hello\\n'); print(await reader.read())
asyncio.run(main())",
        "b'hello\\n'\n",
    ),
    (
        "UNIX sockets by path, by name and in pairs",
        "
import tempfile
for address in [tempfile.mkdtemp() + '/s', '\\0sekisho-test', ]:
    server = socket.socket(socket.AF_UNIX); server.bind(address); server.listen()
    s = socket.socket(socket.AF_UNIX); s.connect(address); server.accept()[0].sendall(b'x'); print(s.recv(1))
    peer = struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)); print(peer[1:])
a, b = socket.socketpair(); a.sendall(b'y'); print(b.recv(1))",
        "b'x'\n(0, 0)\nb'x'\n(0, 0)\nb'y'\n",
    ),
    (
        "datagrams",
        "
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0))
b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.sendto(b'x', a.getsockname()); print(a.recvfrom(9)[0])
b.connect(a.getsockname()); b.send(b'y'); print(a.recv(9))",
        "b'x'\nb'y'\n",
    ),
    (
        "multiprocessing",
        "
import multiprocessing.managers as m
with m.SyncManager() as manager: d = manager.dict(); d['a'] = 1; print(dict(d))",
        "{'a': 1}\n",
    ),
];

#[test]
fn datagrams_for_other_machines_are_recorded() {
    within_namespaces("local::datagrams_for_other_machines_are_recorded", async |policy| {
        let servers = Servers::start();
        let script = "
u, v = (socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6))
print(outcome(u.sendto, b'x', ('8.8.8.8', 53)), outcome(u.connect, ('9.9.9.9', 443)), outcome(v.sendto, b'x', ('2a00::1', 53)))
print(outcome(u.sendto, b'x', ('127.0.0.1', 9)))
import tempfile; path = tempfile.mkdtemp() + '/s'
a, b = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)); a.bind(path); b.sendto(b'y', path); print(a.recv(9))";
        let expected = "ENETUNREACH ENETUNREACH ENETUNREACH\n1\nb'y'\n";
        assert_eq!(servers.run_python(&policy, script).await, expected);
        let recorded = ["8.8.8.8:53", "9.9.9.9:443", "[2a00::1]:53"].map(|address| address.parse().unwrap());
        assert_eq!(*policy.datagrams.lock().unwrap(), recorded);
    });
}

#[test]
fn a_program_has_its_own_loopback_and_unix_sockets() {
    within_namespaces("local::a_program_has_its_own_loopback_and_unix_sockets", async |policy| {
        let servers = Servers::start();
        for (name, script, expected) in SCRIPTS {
            assert_eq!(&servers.run_python(&policy, script).await, expected, "{name}");
        }
        assert!(policy.refused.lock().unwrap().is_empty());
        servers.assert_nothing_else_was_reached();
    });
}

#[test]
fn a_server_of_node_is_reached_by_its_own_client() {
    if !is_installed("node") {
        return;
    }
    within_namespaces("local::a_server_of_node_is_reached_by_its_own_client", async |policy| {
        let script = "const s = require('http').createServer((q, r) => r.end('mine')).listen(0, async () => {
            for (const host of ['localhost', '127.0.0.1', '[::1]'])
                console.log(await (await fetch(`http://${host}:${s.address().port}/`)).text());
            s.close();
        })";
        let node = Program::start(&policy, &["node", "-e", script], &[]);
        assert_eq!(node.output().await, "mine\nmine\nmine\n");
    });
}

#[test]
fn nobody_else_reaches_a_programs_server() {
    within_namespaces("local::nobody_else_reaches_a_programs_server", async |policy| {
        let servers = Servers::start();
        let script = "
server = socket.socket(); server.bind(('0.0.0.0', 0)); server.listen(); other = socket.socket(); other.listen()
print(server.getsockname()[1], other.getsockname()[1])";
        let mut program = servers.start_python(&policy, &format!("{script}; sys.stdout.flush(); time.sleep(60)"));
        let ports = program.first_line();
        for port in ports.split_whitespace() {
            let port: u16 = port.parse().unwrap();
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        }
        program.process.kill().unwrap();
    });
}

#[test]
fn a_port_of_the_machine_is_reached_where_the_policy_names_it() {
    within_namespaces("local::a_port_of_the_machine_is_reached_where_the_policy_names_it", async |policy| {
        let servers = Servers::start();
        let script = "
print(ask(socket.create_connection(LOOPBACK)), outcome(socket.create_connection, ('0.0.0.0', LOOPBACK[1])))
server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()); print('own')";
        *policy.of_machine.lock().unwrap() = Some(servers.loopback.address.port());
        assert_eq!(servers.run_python(&policy, script).await, "loopback ECONNREFUSED\nown\n");
        *policy.of_machine.lock().unwrap() = None;
        let refused = servers.run_python(&policy, "print(outcome(socket.create_connection, LOOPBACK))").await;
        assert_eq!(refused, "ECONNREFUSED\n");
        assert_eq!(*policy.opened.lock().unwrap(), [servers.loopback.address]);
    });
}
