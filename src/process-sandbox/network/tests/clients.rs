//! Clients of HTTP and of sockets, as programs have them.

use std::env;

use super::{Program, Servers, is_installed, within_namespaces};

/// Scripts, and their output. `ask` sends a request to the connection and reads the server's name.
const CLIENTS: &[(&str, &str, &str)] = &[
    (
        "a socket that waits",
        "s = socket.create_connection(PUBLIC); print(ask(s), s.getpeername() == PUBLIC)",
        "public True\n",
    ),
    (
        "a socket with a limit of time",
        "s = socket.socket(); s.settimeout(5); s.connect(PUBLIC); print(ask(s), s.gettimeout())",
        "public 5.0\n",
    ),
    (
        "a socket that does not wait, in epoll before it connects",
        "
import select
s = socket.socket(); s.setblocking(False)
events = select.epoll(); events.register(s, select.EPOLLOUT | select.EPOLLET)
first = s.connect_ex(PUBLIC)
print(errno.errorcode.get(first), events.poll(5) == [(s.fileno(), select.EPOLLOUT)] or events.poll(5) == [(s.fileno(), select.EPOLLOUT)])
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)); s.setblocking(True); print(ask(s))",
        "EINPROGRESS True\n0\npublic\n",
    ),
    (
        "a duplicate that was made before",
        "s = socket.socket(); d = s.dup(); s.connect(PUBLIC); s.close(); print(ask(d))",
        "public\n",
    ),
    (
        "another process that has the socket",
        "
s = socket.socket(); r, w = os.pipe()
if os.fork() == 0:
    os.read(r, 1); print(ask(s)); sys.stdout.flush(); os._exit(0)
s.connect(PUBLIC); os.write(w, b'1'); os.wait()",
        "public\n",
    ),
    (
        "a refused connection",
        "
s = socket.socket(); print(errno.errorcode[s.connect_ex((PUBLIC[0], 1))], errno.errorcode[s.connect_ex((PUBLIC[0], 1))])
s.connect(PUBLIC); print(ask(s))",
        "ECONNREFUSED ECONNREFUSED\npublic\n",
    ),
    (
        "a refused connection of a socket that does not wait",
        "
import select
s = socket.socket(); s.setblocking(False); print(errno.errorcode[s.connect_ex((PUBLIC[0], 1))])
select.select([], [s], [], 5); print(errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])",
        "EINPROGRESS\nECONNREFUSED\n",
    ),
    (
        "a name",
        "
print(socket.getaddrinfo('public.test', 80, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)[0][4])
print(ask(socket.create_connection(('public.test', PUBLIC[1]))))
try: socket.create_connection(('unknown.test', 80))
except OSError as error: print(error)",
        "('203.0.113.7', 80)\npublic\n[Errno -2] Name or service not known\n",
    ),
    ("a second connect", "s = socket.socket(); s.connect(PUBLIC); print(errno.errorcode[s.connect_ex(PUBLIC)])", "EISCONN\n"),
    (
        "a socket of IPv6 with an address of IPv4",
        "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:' + PUBLIC[0], PUBLIC[1])); print(ask(s))",
        "public\n",
    ),
    (
        "a source port",
        "s = socket.create_connection(PUBLIC, source_address=('0.0.0.0', 0)); print(ask(s))",
        "public\n",
    ),
    (
        "options",
        "
s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.connect(PUBLIC); print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), os.get_inheritable(s.fileno()))",
        "1 False\n",
    ),
    (
        "asyncio",
        "
import asyncio
async def main():
    reader, writer = await asyncio.open_connection(*PUBLIC)
    writer.write(REQUEST); print((await reader.read()).split(b'\\r\\n\\r\\n')[-1].decode())
asyncio.run(main())",
        "public\n",
    ),
    (
        "urllib",
        "import urllib.request; print(urllib.request.urlopen('http://%s:%d/' % PUBLIC).read().decode())",
        "public\n",
    ),
];

#[test]
fn sockets_connect_as_without_a_sandbox() {
    within_namespaces("clients::sockets_connect_as_without_a_sandbox", async |policy| {
        let servers = Servers::start();
        for (client, script, expected) in CLIENTS {
            assert_eq!(&servers.run_python(&policy, script).await, expected, "{client}");
        }
        assert!(policy.refused.lock().unwrap().is_empty());
    });
}

#[test]
fn programs_in_other_languages_reach_the_server() {
    within_namespaces("clients::programs_in_other_languages_reach_the_server", async |policy| {
        let servers = Servers::start();
        let url = format!("http://public.test:{}/", servers.public.address.port());
        let fetch = format!("fetch('{url}').then(r => r.text()).then(console.log)");
        let http = format!("require('http').get('{url}', r => r.on('data', d => console.log(String(d))))");
        let resolve =
            "require('dns').resolve4('public.test', (e, a) => console.log(a[0] === '203.0.113.7' && 'public'))";
        let programs: [&[&str]; 5] = [
            &["curl", "--silent", "--show-error", &url],
            &["node", "-e", &fetch],
            &["node", "-e", &http],
            &["node", "-e", resolve],
            &["busybox", "wget", "-q", "-O", "-", &url],
        ];
        let is_there = |program: &&&[&str]| program[0] == "curl" || is_installed(program[0]);
        for program in programs.iter().filter(is_there) {
            let printed = Program::start(&policy, program, &servers.variables()).output().await;
            assert_eq!(printed.trim(), "public", "{program:?}");
        }
    });
}

#[test]
fn a_thousand_connections_at_once() {
    within_namespaces("clients::a_thousand_connections_at_once", async |policy| {
        let script = "
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
def one(count):
    s = socket.socket(); s.settimeout(None if count % 2 else 30); s.connect(PUBLIC); done.append(ask(s)); s.close()
done = []; threads = [threading.Thread(target=one, args=(n,)) for n in range(1000)]
for t in threads: t.start()
for t in threads: t.join()
print(len(done), set(done))";
        assert_eq!(Servers::start().run_python(&policy, script).await, "1000 {'public'}\n");
        assert_eq!(policy.opened.lock().unwrap().len(), 1_000);
    });
}

#[test]
fn a_connection_costs_less_than_a_third_of_a_millisecond() {
    within_namespaces("clients::a_connection_costs_less_than_a_third_of_a_millisecond", async |policy| {
        let script = "
best = 1
for _ in range(20):
    begin = time.perf_counter()
    for _ in range(50):
        s = socket.socket(); s.connect(PUBLIC); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
    best = min(best, (time.perf_counter() - begin) / 50)
print(best * 1e6)";
        let microseconds: f64 = Servers::start().run_python(&policy, script).await.trim().parse().unwrap();
        // A third of it is Python's.
        let slack = env::var("SEKISHO_TEST_SLACK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1.0);
        assert!(microseconds < 300.0 * slack, "{microseconds}");
    });
}
