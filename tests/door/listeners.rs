//! Where a door can be.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gleaner::config::Secret;
use gleaner::door::{Certificate, Listen, Place, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::door::{Caller, Door, Echo, NOW, NOW_AND_CLOSE, here, post, status};
use crate::support::pki::{Leaf, Pki};

fn plain(place: Place) -> Listen {
    Listen { place, tls: None }
}

#[test]
fn ipv4_and_ipv6_stand_side_by_side() {
    // A port that is free for both: the kernel chooses the first, and hardly anybody has the other.
    let (door, port) = loop {
        let port = {
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            probe.local_addr().unwrap().port()
        };
        if TcpListener::bind(("::", port)).is_ok() {
            let places = [
                plain(Place::Tcp(([127, 0, 0, 1], port).into())),
                plain(Place::Tcp(([0u16; 8], port).into())),
            ];
            break (Door::at(&places, Settings::default(), Echo::new(100)), port);
        }
    };
    for host in ["127.0.0.1", "::1"] {
        let mut caller = Caller(TcpStream::connect((host, port)).unwrap());
        caller.send(NOW);
        assert_eq!(caller.status(), 200, "{host}");
    }
    drop(door);
    // Alone, the IPv6 one takes both.
    let places = [plain(Place::Tcp(([0u16; 8], 0).into()))];
    let door = Door::at(&places, Settings::default(), Echo::new(100));
    let mut caller = Caller(TcpStream::connect(("127.0.0.1", door.addresses[0].port())).unwrap());
    caller.send(NOW);
    assert_eq!(caller.status(), 200);
}

#[test]
fn an_address_in_use_is_said_with_its_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = plain(Place::Tcp(taken.local_addr().unwrap()));
    let error =
        gleaner::door::PublicDoor::open(&[place], Box::new(Echo::new(0)), Settings::default())
            .unwrap_err()
            .to_string();
    let address = taken.local_addr().unwrap();
    assert_eq!(
        error,
        format!("cannot listen at {address}: Address already in use (os error 98)")
    );
}

#[test]
fn a_unix_socket_has_its_permissions_and_goes_at_the_end() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("door");
    let place = plain(Place::Unix {
        path: path.clone(),
        mode: 0o620,
    });
    let door = Door::at(&[place], Settings::default(), Echo::new(100));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o620);
    let mut caller = Caller(UnixStream::connect(&path).unwrap());
    caller.send(post("/echo", b"hello"));
    assert_eq!(caller.answer().1, b"hello");
    drop(door);
    assert!(!path.exists());
}

/// Runs only as the child of the next test: its sockets were passed by a shell.
#[test]
#[ignore = "needs the sockets of the test that runs it"]
fn serves_what_was_passed() {
    if std::env::var_os("LISTEN_FDS").is_none() {
        println!("left out: the test below runs this one");
        return;
    }
    let places = ["web", "local"].map(|name| plain(Place::Systemd { name: name.into() }));
    let _door = Door::at(&places, Settings::default(), Echo::new(100));
    // Until the other side of this has seen enough.
    std::io::stderr().write_all(b"serving\n").unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn sockets_of_systemd_are_taken_over() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("door");
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap();
    let local = UnixListener::bind(&path).unwrap();
    // Asked before anybody serves: the kernel keeps it.
    let mut early = Caller(TcpStream::connect(address).unwrap());
    early.send(NOW_AND_CLOSE);
    let (hold, held) = UnixStream::pair().unwrap();
    let script = "exec 3<&0 4>&1 0<&2 1>/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:local exec \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "listeners::serves_what_was_passed",
            "--nocapture",
        ])
        .stdin(Stdio::from(OwnedFd::from(web)))
        .stdout(Stdio::from(OwnedFd::from(local)))
        .stderr(Stdio::from(OwnedFd::from(held)))
        .spawn()
        .unwrap();
    assert_eq!(status(&early.rest()), 200);
    let mut caller = Caller(UnixStream::connect(&path).unwrap());
    caller.send(post("/echo", b"hello"));
    assert_eq!(caller.answer().1, b"hello");
    hold.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A door behind TLS, and its files.
struct Safe {
    door: Door,
    certificate: Certificate,
    pki: Pki,
}

impl Safe {
    fn open(leaf: impl FnOnce(&Pki) -> Leaf) -> Self {
        let pki = Pki::new();
        let certificate = {
            let leaf = leaf(&pki);
            Certificate::read(
                &pki.file("cert.pem", &leaf.cert),
                &Secret::File(pki.file("key.pem", &leaf.key)),
            )
            .unwrap()
        };
        let listen = Listen {
            tls: Some(certificate.clone()),
            ..here()
        };
        let door = Door::at(&[listen], Settings::default(), Echo::new(1024 * 1024));
        Self {
            door,
            certificate,
            pki,
        }
    }

    fn connect(&self, name: &str) -> Caller<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect(self.door.addresses[0]).unwrap();
        Caller(StreamOwned::new(client(&self.pki.ca_file(), name), socket))
    }

    /// Whether a new connection is shown a certificate for this name.
    fn shows(&self, name: &str) -> bool {
        let mut caller = self.connect(name);
        match caller.0.write_all(NOW).and_then(|()| caller.0.flush()) {
            Ok(()) => caller.status() == 200,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
                false
            }
        }
    }
}

fn client(ca: &Path, name: &str) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(ca).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

#[test]
fn tls_carries_the_same_requests() {
    let safe = Safe::open(|pki| pki.leaf(&["gw.example"]));
    let mut caller = safe.connect("gw.example");
    // All at once: more is decrypted than is read in one piece.
    let body = vec![b'x'; 7000];
    let mut all = Vec::new();
    for _ in 0..20 {
        all.extend(post("/echo", &body));
        all.extend(NOW);
    }
    caller.send(all);
    for _ in 0..20 {
        assert_eq!(caller.answer().1, body);
        assert_eq!(caller.answer().1, b"now\n");
    }
    // A large answer, of which the socket takes only a part at a time.
    let large = vec![b'y'; 1024 * 1024];
    let mut patient = safe.connect("gw.example");
    patient.send(post("/echo", &large));
    caller.send(NOW);
    assert_eq!(caller.status(), 200);
    assert_eq!(patient.answer().1, large);
    // The end is said, not only cut.
    caller.send(NOW_AND_CLOSE);
    assert_eq!(status(&caller.rest()), 200);
}

#[test]
fn what_was_decrypted_already_is_not_waited_for() {
    let safe = Safe::open(|pki| pki.leaf(&["gw.example"]));
    // The first request fills one TLS record and one read of the door; the second one comes in the same packets.
    let head = post("/echo", &[b'x'; 10_000]).len() - 10_000;
    let first = post("/echo", &vec![b'x'; 16 * 1024 - head]);
    assert_eq!(first.len(), 16 * 1024);
    for _ in 0..20 {
        let mut caller = safe.connect("gw.example");
        caller.send([first.as_slice(), NOW].concat());
        assert_eq!(caller.status(), 200);
        assert_eq!(caller.status(), 200);
    }
}

#[test]
fn a_handshake_byte_by_byte_stalls_nobody_and_has_ten_seconds() {
    let safe = Safe::open(|pki| pki.leaf(&["gw.example"]));
    let mut hello = Vec::new();
    client(&safe.pki.ca_file(), "gw.example")
        .write_tls(&mut hello)
        .unwrap();
    let mut slow = safe.door.connect();
    for byte in &hello[..100] {
        slow.send([*byte]);
    }
    assert!(safe.shows("gw.example"));
    safe.door.advance(Duration::from_secs(10));
    assert!(slow.is_closed());
    let mut deaf = safe.door.connect();
    deaf.send(NOW);
    // An alert, and the end.
    assert!(!deaf.rest().contains("HTTP"));
    assert!(safe.shows("gw.example"));
}

#[test]
fn a_renewed_certificate_is_shown_after_a_reload_and_a_broken_one_is_not() {
    let safe = Safe::open(|pki| pki.leaf(&["old.example"]));
    let mut kept = safe.connect("old.example");
    kept.send(NOW);
    assert_eq!(kept.status(), 200);
    let renewed = safe.pki.leaf(&["new.example"]);
    let cert = safe.pki.file("cert.pem", &renewed.cert);
    // Half of it is there.
    let error = safe.certificate.reload().unwrap_err().to_string();
    assert!(
        error.ends_with(&format!(
            "key.pem\" }}: this private key does not belong to the certificate in {}",
            cert.display()
        )),
        "{error}"
    );
    assert!(safe.shows("old.example") && !safe.shows("new.example"));
    safe.pki.file("key.pem", &renewed.key);
    safe.certificate.reload().unwrap();
    assert!(!safe.shows("old.example") && safe.shows("new.example"));
    safe.pki.file("cert.pem", "nothing");
    let error = safe.certificate.reload().unwrap_err().to_string();
    assert!(
        error.ends_with("cert.pem: expected certificates in PEM, found none"),
        "{error}"
    );
    assert!(safe.shows("new.example"));
    kept.send(NOW);
    assert_eq!(kept.status(), 200);
}
