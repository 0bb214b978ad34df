//! Packages that are installed by npm from a registry on this machine, and their programs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;

use super::common::{profile, run};
use sekisho_process_sandbox::network::{Connections, Refused, Resolved};
use sekisho_process_sandbox::packages::{InstallError, Installed, PackageCommand, PackageFolder};
use sekisho_process_sandbox::{Network, Profile};

const PROGRAM: &str = "#!/usr/bin/env node
const fs = require('fs');
const refused = action => { try { action(); return 'written' } catch (error) { return error.code } };
console.log(process.argv.slice(2).join(' '), refused(() => fs.writeFileSync(__filename, '')),
    refused(() => fs.writeFileSync('/sekisho-packages/new', '')), refused(() => fs.writeFileSync(process.env.HOME + '/own', '')));
";

/// An installation script that tries everything that is forbidden, and writes its successes beside itself.
const HOSTILE: &str = "const fs = require('fs'), net = require('net'), http = require('http');
const reached = [];
const attempt = (what, action) => { try { action(); reached.push(what) } catch {} };
const outside = process.env.npm_config_outside;
attempt('secret', () => fs.readFileSync(outside + '/secret'));
attempt('secret by link', () => { fs.symlinkSync(outside + '/secret', 'link'); fs.readFileSync('link') });
attempt('file outside', () => fs.writeFileSync(outside + '/new', ''));
attempt('file of the record', () => fs.readFileSync('/sekisho-packages/../installed.json'));
attempt('program', () => fs.writeFileSync('/usr/local/bin/installed-by-a-script', ''));
attempt('keys', () => fs.readdirSync(process.env.HOME + '/.ssh'));
attempt('environment of process 1', () => fs.readFileSync('/proc/1/environ'));
if (process.env.API_KEY) reached.push('variable of the server');
fs.writeFileSync(process.env.HOME + '/in-memory', '');
const connect = port => new Promise(done => {
    const socket = net.connect(port, '127.0.0.1', () => { reached.push('port ' + port); socket.destroy(); done() });
    socket.on('error', done);
});
connect(process.env.npm_config_other_port).then(() => new Promise(done =>
    http.get('http://8.8.8.8/', () => { reached.push('public address'); done() }).on('error', done)
)).then(() => fs.writeFileSync('reached.json', JSON.stringify(reached)));
";

/// Allows the port of the registry.
#[derive(Debug)]
struct Registry {
    port: u16,
}

#[async_trait]
impl Connections for Registry {
    async fn resolve(&self, _host: &str) -> Resolved {
        Resolved::NoSuchName
    }

    fn may_connect(&self, _address: SocketAddr) -> Result<(), Refused> {
        Err(Refused)
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        loopback.port() == self.port
    }

    fn opened(&self, _address: SocketAddr) {}
}

/// A package as it is published: `package.json` without its name and version, and its files.
fn published(folder: &Path, name: &str, version: &str, document: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let package = folder.join(format!("{name}-{version}/package"));
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("package.json"), document_of(name, version, document)).unwrap();
    for (file, text) in files {
        fs::write(package.join(file), text).unwrap();
    }
    let tar = Command::new("tar").args(["-cz", "package"]).current_dir(package.parent().unwrap()).output().unwrap();
    assert!(tar.status.success(), "{tar:?}");
    tar.stdout
}

fn document_of(name: &str, version: &str, document: &str) -> String {
    format!(r#"{{"name": "{name}", "version": "{version}", {document}}}"#)
}

/// A registry of npm with these answers.
fn registry(answers: impl Fn(u16) -> BTreeMap<String, Vec<u8>>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = answers(port);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = vec![0; 1 << 14];
            let length = connection.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let answer = answers.get(request.split(' ').nth(1).unwrap_or_default());
            let status = if answer.is_some() { "200 OK" } else { "404 Not Found" };
            let body = answer.map_or(&b"{}"[..], Vec::as_slice);
            _ = write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            _ = connection.write_all(body);
        }
    });
    port
}

/// A folder of packages, and a registry with three of them.
struct Setting {
    folder: tempfile::TempDir,
    packages: PackageFolder,
    port: u16,
    other: TcpListener,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        let plain = r#""bin": "program.js""#;
        let script = |script: &str| format!(r#"{plain}, "scripts": {{"install": "{script}"}}"#);
        let packages = [
            ("demo", "1.0.0", plain.to_owned()),
            ("demo", "1.1.0", plain.to_owned()),
            ("hostile", "1.0.0", script("node hostile.js")),
            ("failing", "1.0.0", script("exit 3")),
        ];
        let port = registry(|port| {
            let mut answers = BTreeMap::new();
            let mut versions = BTreeMap::<_, Vec<_>>::new();
            for (name, version, document) in &packages {
                let files = [("program.js", PROGRAM), ("hostile.js", HOSTILE)];
                let tarball = published(folder.path(), name, version, document, &files);
                answers.insert(format!("/{name}/-/{name}-{version}.tgz"), tarball);
                let dist = format!(
                    r#"{document}, "dist": {{"tarball": "http://127.0.0.1:{port}/{name}/-/{name}-{version}.tgz"}}"#
                );
                versions.entry(*name).or_default().push((*version, document_of(name, version, &dist)));
            }
            for (name, versions) in versions {
                let latest = versions.last().unwrap().0;
                let versions: Vec<_> =
                    versions.iter().map(|(version, text)| format!(r#""{version}": {text}"#)).collect();
                let text = format!(
                    r#"{{"name": "{name}", "dist-tags": {{"latest": "{latest}"}}, "versions": {{{}}}}}"#,
                    versions.join(", ")
                );
                answers.insert(format!("/{name}"), text.into_bytes());
            }
            answers
        });
        let packages = PackageFolder::new(folder.path().join("packages"));
        Self { packages, port, other: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), folder }
    }

    fn installer(&self) -> Profile {
        let mut profile = Profile { network: Network::Public, supervised: true, ..profile("npm", &[]) };
        profile.env.extend([
            ("npm_config_registry".to_owned(), format!("http://127.0.0.1:{}/", self.port)),
            ("npm_config_fetch_retries".to_owned(), "0".to_owned()),
            ("npm_config_outside".to_owned(), self.folder.path().display().to_string()),
            ("npm_config_other_port".to_owned(), self.other.local_addr().unwrap().port().to_string()),
        ]);
        profile
    }

    async fn install(&self, text: &str) -> Result<Installed, InstallError> {
        let connections: Arc<dyn Connections> = Arc::new(Registry { port: self.port });
        self.packages.install(&command(text), &self.installer(), &connections, true, &without_secret).await
    }

    /// The folders of installations.
    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("packages")).unwrap().map(|entry| entry.unwrap().path());
        let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    }
}

fn without_secret(output: &str) -> String {
    output.replace("npm_s3cret", "[redacted]")
}

fn command(text: &str) -> PackageCommand {
    let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
    PackageCommand::parse(&words[0], &words[1..]).unwrap().unwrap()
}

#[tokio::test]
async fn an_installed_program_runs_without_network_and_writes_nothing_beside_itself() {
    let setting = Setting::new();
    let entry = command("npx -y demo@1.0.0 some arguments");
    assert_eq!(setting.packages.installed(&entry), None);
    let installed = setting.install("npx -y demo@1.0.0 some arguments").await.unwrap();
    assert_eq!((&*installed.package.name, &*installed.package.version), ("demo", "1.0.0"));
    assert_eq!(setting.packages.installed(&entry), Some(installed.clone()));
    let mut profile = profile("npx", &[]);
    installed.run_by(&entry, &mut profile);
    let ended = run(&profile).await;
    assert_eq!((&*ended.output, &*ended.errors), ("some arguments EROFS EROFS written\n", ""));
    let read = installed.read(None).unwrap();
    assert_eq!(read.package, installed.package);
    // Where there are no namespaces, its folder has the path of the machine, here in a folder that every program may write.
    profile.home.kept = Some(setting.folder.path().join("home"));
    fs::create_dir(setting.folder.path().join("home")).unwrap();
    let ended = run(&profile.in_namespaces_of_machine("they are refused".to_owned())).await;
    assert!(ended.output.starts_with("some arguments "), "{} {}", ended.output, ended.errors);
    let program = setting.folders()[0].join("node_modules/demo/program.js");
    fs::write(program, "changed").unwrap();
    assert_ne!(installed.read(Some(&read)).unwrap().package.digest, installed.package.digest);
}

#[tokio::test]
async fn the_same_package_has_the_same_digest_and_the_last_two_installations_are_kept() {
    let setting = Setting::new();
    let first = setting.install("npx demo@1.0.0").await.unwrap();
    let again = setting.install("npx demo@1.0.0").await.unwrap();
    assert_eq!(first.package, again.package);
    let newer = setting.install("npx demo").await.unwrap();
    assert_eq!(newer.package.version, "1.1.0");
    assert_ne!(newer.package.digest, first.package.digest);
    let names: Vec<_> = setting.folders().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["2", "3"]);
    assert_eq!(setting.packages.installed(&command("npx demo@1.0.0")), None, "another command");
}

#[tokio::test]
async fn an_installation_that_was_interrupted_is_removed_by_the_next_one() {
    let setting = Setting::new();
    setting.install("npx demo@1.0.0").await.unwrap();
    for number in ["2", "7"] {
        fs::create_dir_all(setting.folder.path().join("packages").join(number).join("node_modules/half")).unwrap();
    }
    assert!(setting.install("npx unknown").await.is_err());
    let names: Vec<_> = setting.folders().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["1"]);
    // The record names a folder that is gone: another one does not take its name before it is complete.
    fs::remove_dir_all(setting.folder.path().join("packages/1")).unwrap();
    setting.install("npx demo@1.0.0").await.unwrap();
    let names: Vec<_> = setting.folders().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["2"]);
}

#[tokio::test]
async fn a_hostile_script_writes_only_the_packages_and_reaches_only_the_registry() {
    let setting = Setting::new();
    setting.other.set_nonblocking(true).unwrap();
    setting.install("npx hostile").await.unwrap();
    let folder = setting.folders().remove(0);
    let reached = fs::read_to_string(folder.join("node_modules/hostile/reached.json")).unwrap();
    assert_eq!(reached, "[]");
    assert!(setting.other.accept().is_err());
    assert!(!setting.folder.path().join("new").exists());
    assert!(!folder.join(".cache").exists());
}

#[tokio::test]
async fn a_failing_installation_says_why_and_leaves_nothing() {
    let setting = Setting::new();
    // Its script is of no use.
    assert_eq!(setting.install("npx failing").await.unwrap().package.name, "failing");
    // The registry's answer repeats the name.
    let error = setting.install("npx npm_s3cret").await.unwrap_err();
    assert!(error.to_string().contains("E404") && !error.to_string().contains("s3cret"), "{error}");
    let error = setting.install("npx unknown").await.unwrap_err();
    assert!(matches!(&error, InstallError::Installer { line, .. } if line.contains("E404")), "{error}");
    let error = setting.install("npx -p demo other").await.unwrap_err();
    assert_eq!(error.to_string(), "its packages have no program other");
    let elsewhere: Arc<dyn Connections> = Arc::new(Registry { port: 1 });
    let (entry, installer) = (command("npx demo"), setting.installer());
    let installing = setting.packages.install(&entry, &installer, &elsewhere, true, &without_secret);
    let error = installing.await.unwrap_err();
    assert!(matches!(error, InstallError::NoConnection(_)), "{error}");
    assert_eq!(setting.folders().len(), 1, "the one that was installed");
    assert!(setting.packages.installed(&command("npx failing")).is_some());
}
