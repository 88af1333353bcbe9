use std::sync::{Arc, Barrier};

use super::*;

const TIME: Duration = Duration::from_secs(20);
/// An address at which no other test takes a port that this one has given up.
const OWN: &str = if cfg!(target_os = "linux") { "127.0.0.3" } else { "127.0.0.1" };

fn server() -> Store {
    Store::connect("127.0.0.1", 0, true, TIME).unwrap()
}

fn client(server: &Store, timeout: Duration) -> Store {
    Store::connect("127.0.0.1", server.port(), false, timeout).unwrap()
}

fn kind(error: &Error) -> ErrorKind {
    match error {
        Error::Store { source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

#[test]
fn values_are_those_that_were_set() {
    let server = server();
    assert!(server.is_server() && server.is_local());
    let client = client(&server, TIME);
    let large = vec![7; MOST_VALUE];
    for value in [&b""[..], b"x", b"\0\xff", &large] {
        client.set("key", value).unwrap();
        assert_eq!(server.get("key").unwrap(), value);
    }
    assert!(client.delete("key").unwrap() && !client.delete("key").unwrap());
    assert_eq!(client.add("count", 5).unwrap(), 5);
    assert_eq!(server.add("count", -7).unwrap(), -2);
    assert_eq!(client.get("count").unwrap(), b"-2");
    client.wait(&[]).unwrap();
}

#[test]
fn a_value_is_replaced_if_it_is_the_expected_one() {
    let store = server();
    assert_eq!(store.compare_set("key", Some(b"a"), b"b").unwrap(), None);
    assert_eq!(store.compare_set("key", None, b"a").unwrap().unwrap(), b"a");
    assert_eq!(store.compare_set("key", None, b"b").unwrap().unwrap(), b"a");
    assert_eq!(store.compare_set("key", Some(b"c"), b"b").unwrap().unwrap(), b"a");
    assert_eq!(store.compare_set("key", Some(b"a"), b"b").unwrap().unwrap(), b"b");
    assert_eq!(store.get("key").unwrap(), b"b");
    let large = vec![7; MOST_VALUE];
    store.set("key", &large).unwrap();
    assert_eq!(store.compare_set("key", Some(&large), &large).unwrap().unwrap(), large);
}

#[test]
fn concurrent_clients_count_together_and_wait_for_each_other() {
    const CLIENTS: usize = 8;
    let server = server();
    let begun = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for rank in 0..CLIENTS {
            let (server, begun) = (&server, &begun);
            scope.spawn(move || {
                let store = client(server, TIME);
                begun.wait();
                for _ in 0..100 {
                    store.add("sum", rank as i64).unwrap();
                }
                store.set(&format!("done/{rank}"), b"").unwrap();
                let all: Vec<String> = (0..CLIENTS).map(|rank| format!("done/{rank}")).collect();
                store.wait(&all.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
                assert_eq!(store.get("sum").unwrap(), b"2800");
            });
        }
    });
}

#[test]
fn threads_share_a_client() {
    let server = server();
    let store = client(&server, TIME);
    thread::scope(|scope| {
        let waits = scope.spawn(|| store.get("late").unwrap());
        // The wait occupies a connection; this request takes another one.
        while !waits.is_finished() {
            store.set("late", b"here").unwrap();
        }
        assert_eq!(waits.join().unwrap(), b"here");
    });
}

#[test]
fn a_wait_ends_at_its_time_limit_and_the_client_goes_on() {
    let server = server();
    let store = client(&server, Duration::from_millis(50));
    store.set("there", b"").unwrap();
    let begun = Instant::now();
    let late = [store.get("missing").unwrap_err(), store.wait(&["there", "missing"]).unwrap_err()];
    assert!(begun.elapsed() >= Duration::from_millis(100));
    for late in late {
        assert_eq!(kind(&late), ErrorKind::TimedOut);
        assert!(late.to_string().contains("missing within 0.05 s"), "{late}");
    }
    assert_eq!(store.add("n", 1).unwrap(), 1);
}

#[test]
fn a_client_waits_for_its_server() {
    let port = {
        let server = Store::connect(OWN, 0, true, TIME).unwrap();
        server.port()
    };
    let late = Store::connect(OWN, port, false, Duration::from_millis(50)).map(|_| ()).unwrap_err();
    assert_eq!(kind(&late), ErrorKind::TimedOut);
    assert!(late.to_string().contains("MASTER_ADDR"), "{late}");
    thread::scope(|scope| {
        let client = scope.spawn(|| Store::connect(OWN, port, false, TIME).unwrap().get("key"));
        thread::sleep(Duration::from_millis(50));
        let server = Store::connect(OWN, port, true, TIME).unwrap();
        server.set("key", b"v").unwrap();
        assert_eq!(client.join().unwrap().unwrap(), b"v");
        let second = Store::connect(OWN, port, true, TIME).map(|_| ()).unwrap_err();
        assert!(second.to_string().contains("set MASTER_PORT to a free one"), "{second}");
    });
}

#[test]
fn a_server_that_ends_is_an_error_of_its_clients() {
    let server = server();
    let store = client(&server, TIME);
    thread::scope(|scope| {
        let waits = scope.spawn(|| store.get("never").unwrap_err());
        thread::sleep(Duration::from_millis(50));
        drop(server);
        let lost = waits.join().unwrap();
        assert!(is_lost(&lost), "{lost}");
    });
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let store = server();
    for (key, value) in [("k".repeat(MOST_KEY + 1), vec![]), ("k".to_owned(), vec![0; MOST_VALUE + 1])] {
        assert_eq!(kind(&store.set(&key, &value).unwrap_err()), ErrorKind::InvalidInput);
    }
    assert!(store.wait(&["k"; MOST_KEYS + 1]).unwrap_err().to_string().contains("fewer at a time"));
    let long = "k".repeat(MOST_KEY);
    assert!(store.wait(&[long.as_str(); MOST_KEYS]).unwrap_err().to_string().contains("fewer at a time"));
    store.set("text", b"abc").unwrap();
    let refused = store.add("text", 1).unwrap_err();
    assert!(refused.to_string().contains("not a number"), "{refused}");
    store.add("n", i64::MAX).unwrap();
    assert!(store.add("n", 1).unwrap_err().to_string().contains("64 bits"));
    // More than all values may take together.
    let large = vec![0; MOST_VALUE];
    let full = (0..300).find_map(|i| store.set(&format!("large/{i}"), &large).err()).unwrap();
    assert!(full.to_string().contains("the store is full"), "{full}");
    assert!(store.delete("large/0").unwrap());
    store.set("small", b"v").unwrap();
}

/// Connects and sends bytes. Returns what comes back before the store closes the connection, which it must.
fn stray(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIME)).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => answer,
    }
}

#[test]
fn stray_connections_are_closed() {
    let server = server();
    let port = server.port();
    // Silent ones, and one that begins well.
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    (&silent[0]).write_all(&GREETING[..5]).unwrap();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    assert_eq!(stray(port, b"GET / HTTP/1.1\r\n\r\n"), b"");
    // What PyTorch's client sends first.
    assert_eq!(stray(port, &[0, 0xce, 0xf7, 0x85, 0x3c]), b"");
    // Another version learns of this one.
    assert_eq!(stray(port, b"NXSTORE\x02"), GREETING);
    let greeted = |rest: &[u8]| stray(port, &[&GREETING[..], rest].concat());
    // A message of 4 GiB, an unknown kind, a field that is longer than its message, and an empty message.
    for damaged in [&[255; 4][..], &[1, 0, 0, 0, 99], &[5, 0, 0, 0, 0, 255, 255, 255, 255], &[0; 4]] {
        assert_eq!(greeted(damaged), GREETING);
    }
    // Requests that lack fields are answered.
    for request in [Kind::Set, Kind::Get, Kind::Add, Kind::Wait, Kind::Delete, Kind::CompareSet, Kind::Late] {
        let mut bytes = Message::new(request, &[b"k"]).encode();
        // Nothing that can be a message: the store closes the connection.
        bytes.extend([255; 4]);
        let mut answer = greeted(&bytes).split_off(GREETING.len());
        let answer = Message::take(&mut answer).unwrap().unwrap();
        let expected = if request == Kind::Delete { Kind::Done } else { Kind::Refused };
        assert_eq!(answer.kind, expected, "{request:?}");
    }
    server.set("key", b"v").unwrap();
    assert_eq!(client(&server, TIME).get("key").unwrap(), b"v");
}

#[test]
fn random_bytes_are_no_request() {
    let server = server();
    let mut state = 1u64;
    for length in 0..200 {
        let mut byte = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        let garbage: Vec<u8> = (0..length).map(|_| byte()).collect();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let _ = stream.write_all(&[&GREETING[..], &garbage].concat());
    }
    server.set("key", b"v").unwrap();
    assert_eq!(server.get("key").unwrap(), b"v");
}

#[test]
fn another_program_at_the_address_is_not_a_store() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = Arc::new(listener);
    for (greeting, message) in [(b"HTTP/1.1", "another program listens"), (b"NXSTORE\x07", "has version 7")] {
        let listener = listener.clone();
        let other = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(greeting).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let refused = Store::connect("127.0.0.1", port, false, TIME).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(message), "{refused}");
        other.join().unwrap();
    }
}

#[test]
fn a_wait_can_be_interrupted() {
    let server = server();
    let store = client(&server, TIME);
    let _watch = interrupt::watch(|| true);
    let ended = store.get("never").unwrap_err();
    assert!(matches!(ended, Error::Engine(phynexus::Error::Interrupted)), "{ended}");
}

#[test]
fn messages_survive_the_wire() {
    let message = Message::new(Kind::Wait, &[b"", b"key", &[0; 300]]);
    let mut bytes = message.encode();
    let (whole, more) = (bytes.len(), Message::new(Kind::Done, &[]).encode());
    bytes.extend(&more);
    for end in 0..whole {
        assert_eq!(Message::take(&mut bytes[..end].to_vec()), Ok(None));
    }
    assert_eq!(Message::take(&mut bytes), Ok(Some(message)));
    assert_eq!(bytes, more);
}
