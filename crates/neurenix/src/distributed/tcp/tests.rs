use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use phynexus::{DType, op::Combine};

use super::*;

const TIME: Duration = Duration::from_secs(30);

/// Runs `work` as every rank, each with a thread and connections of its own. Returns the results by rank.
fn ranks<R: Send>(size: usize, timeout: Duration, work: impl Fn(Arc<Tcp>) -> R + Sync) -> Vec<R> {
    let server = Store::connect("127.0.0.1", 0, true, TIME).unwrap();
    let port = server.port();
    thread::scope(|scope| {
        let run = |rank| {
            let work = &work;
            scope.spawn(move || {
                let store = Store::connect("127.0.0.1", port, false, TIME).unwrap();
                work(Tcp::connect(&store, "test", rank, size, TIME, timeout).unwrap())
            })
        };
        let threads: Vec<_> = (0..size).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A rank's name in errors.
fn name(rank: usize) -> String {
    format!("rank {rank} (process {} on host ", std::process::id())
}

/// Numbers of a rank.
fn numbers(rank: usize, count: usize) -> Vec<u8> {
    (0..count as u32).flat_map(|i| (i % 1000 + 7 * rank as u32).to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// The sum of all ranks' numbers.
fn sums(size: usize, count: usize) -> Vec<u32> {
    let all = (size * (size - 1) / 2 * 7) as u32;
    (0..count as u32).map(|i| size as u32 * (i % 1000) + all).collect()
}

#[test]
fn collectives_of_all_sizes() {
    for size in [1, 2, 3, 4] {
        ranks(size, TIME, |tcp| {
            let rank = tcp.rank();
            assert_eq!((tcp.name(), tcp.size()), ("tcp", size));
            for count in [0, 1, 5, 1013, 100_003] {
                let own = numbers(rank, count);
                let mut reduced = own.clone();
                tcp.all_reduce(&mut reduced, DType::U32, Combine::Sum).unwrap();
                assert_eq!(read(&reduced), sums(size, count), "{size} {count}");

                let mut gathered = vec![0; size * own.len()];
                tcp.all_gather(&own, &mut gathered).unwrap();
                let all: Vec<u8> = (0..size).flat_map(|rank| numbers(rank, count)).collect();
                assert!(gathered == all, "{size} {count}");

                let long = numbers(rank, size * count);
                let mut part = vec![0; own.len()];
                tcp.reduce_scatter(&long, &mut part, DType::U32, Combine::Sum).unwrap();
                assert_eq!(read(&part), sums(size, size * count)[rank * count..][..count], "{size} {count}");

                let mut exchanged = vec![0; long.len()];
                tcp.all_to_all(&long, &mut exchanged).unwrap();
                let part = |from| numbers(from, size * count)[4 * rank * count..][..4 * count].to_vec();
                assert!(exchanged == (0..size).flat_map(part).collect::<Vec<u8>>(), "{size} {count}");

                for root in 0..size {
                    let mut bytes = if rank == root { own.clone() } else { vec![0; own.len()] };
                    tcp.broadcast(&mut bytes, root).unwrap();
                    assert!(bytes == numbers(root, count), "{size} {count} {root}");
                }
                tcp.barrier().unwrap();
            }
        });
    }
}

#[test]
fn eight_mebibytes_both_ways_at_once() {
    let count = 2 << 20;
    ranks(2, TIME, |tcp| {
        let other = 1 - tcp.rank();
        let (own, mut received) = (numbers(tcp.rank(), count), vec![0; 4 * count]);
        for _ in 0..3 {
            received.fill(0);
            let (send, receive) =
                (Outgoing { bytes: &own, to: other }, Incoming { bytes: &mut received, from: other });
            tcp.exchange(Some(send), Some(receive)).unwrap();
            assert!(received == numbers(other, count));
        }
    });
}

#[test]
fn ranks_that_all_send_first_do_not_wait_for_each_other() {
    // More than the system's buffers hold.
    let count = 8 << 20;
    ranks(3, TIME, |tcp| {
        let (to, from) = ((tcp.rank() + 1) % 3, (tcp.rank() + 2) % 3);
        let own = numbers(tcp.rank(), count);
        tcp.exchange(Some(Outgoing { bytes: &own, to }), None).unwrap();
        tcp.exchange(Some(Outgoing { bytes: &own[..4], to }), None).unwrap();
        // Messages arrive in order, whether they came early or not.
        let mut received = vec![0; own.len()];
        tcp.exchange(None, Some(Incoming { bytes: &mut received, from })).unwrap();
        assert!(received == numbers(from, count));
        tcp.exchange(None, Some(Incoming { bytes: &mut received[..4], from })).unwrap();
        assert!(received[..4] == numbers(from, 1));
        tcp.barrier().unwrap();
    });
}

#[test]
fn a_rank_sends_to_itself() {
    ranks(2, TIME, |tcp| {
        let own = tcp.rank();
        let mut received = [0; 3];
        tcp.exchange(Some(Outgoing { bytes: b"one", to: own }), None).unwrap();
        let receive = Incoming { bytes: &mut received, from: own };
        tcp.exchange(Some(Outgoing { bytes: b"two", to: own }), Some(receive)).unwrap();
        assert_eq!(&received, b"one");
        tcp.exchange(None, Some(Incoming { bytes: &mut received, from: own })).unwrap();
        assert_eq!(&received, b"two");
        let unknown = tcp.exchange(Some(Outgoing { bytes: b"", to: 2 }), None).unwrap_err();
        assert!(unknown.to_string().contains("there is no rank 2"), "{unknown}");
        // A wrong argument breaks nothing.
        tcp.barrier().unwrap();
    });
}

#[test]
fn threads_of_a_rank_take_turns() {
    ranks(2, TIME, |tcp| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // The same message, whichever thread exchanges it.
                    for _ in 0..50 {
                        tcp.barrier().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn another_length_is_an_error_of_all_ranks() {
    let errors = ranks(3, TIME, |tcp| {
        let count = if tcp.rank() == 1 { 2 } else { 3 };
        let error = tcp.all_gather(&vec![0; count], &mut vec![0; 3 * count]).unwrap_err().to_string();
        let later = tcp.barrier().unwrap_err().to_string();
        assert!(later.contains("an earlier collective failed") && later.contains("initialise"), "{later}");
        error
    });
    for error in errors {
        assert!(error.contains("bytes, where") && error.contains("same collectives"), "{error}");
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all_that_need_it() {
    let begun = Instant::now();
    let errors = ranks(4, TIME, |tcp| {
        tcp.barrier().unwrap();
        if tcp.rank() == 1 {
            drop(tcp);
            return String::new();
        }
        tcp.all_reduce(&mut numbers(tcp.rank(), 1000), DType::U32, Combine::Sum).unwrap_err().to_string()
    });
    assert!(begun.elapsed() < TIME / 2);
    for error in errors.iter().enumerate().filter(|(rank, _)| *rank != 1).map(|(_, error)| error) {
        assert!(error.contains(&name(1)) && error.contains("has ended: it closed"), "{error}");
    }
}

#[test]
fn ranks_go_on_without_one_that_left() {
    ranks(3, TIME, |tcp| {
        if tcp.rank() == 1 {
            // What it sent arrives nevertheless.
            tcp.exchange(Some(Outgoing { bytes: b"bye", to: 0 }), None).unwrap();
            tcp.leave();
            assert!(tcp.barrier().unwrap_err().to_string().contains("is closed"));
            return;
        }
        let other = 2 - tcp.rank();
        // Longer than the others' patience with a rank that ends without notice.
        for _ in 0..160 {
            let mut received = [0];
            let receive = Incoming { bytes: &mut received, from: other };
            tcp.exchange(Some(Outgoing { bytes: &[7], to: other }), Some(receive)).unwrap();
            assert_eq!(received, [7]);
            thread::sleep(Duration::from_millis(5));
        }
        if tcp.rank() == 0 {
            let mut received = [0; 3];
            tcp.exchange(None, Some(Incoming { bytes: &mut received, from: 1 })).unwrap();
            assert_eq!(&received, b"bye");
        }
        assert!(tcp.has_ended(1) && !tcp.has_ended(tcp.rank()));
        // Also once this rank has left.
        tcp.leave();
        assert!(tcp.has_ended(1) && !tcp.has_ended(tcp.rank()));
    });
}

#[test]
fn a_rank_that_failed_has_ended() {
    ranks(3, TIME, |tcp| {
        let late = Instant::now() + TIME / 2;
        match tcp.rank() {
            0 => drop(tcp.exchange(Some(Outgoing { bytes: &[0; 2], to: 1 }), None)),
            // It expects another length, and so its exchange fails.
            1 => {
                tcp.exchange(None, Some(Incoming { bytes: &mut [0; 3], from: 0 })).unwrap_err();
                assert!(!tcp.has_ended(1));
                return;
            }
            _ => {}
        }
        // The others hear of it although they exchange nothing, or have failed because of it.
        while !tcp.has_ended(1) {
            assert!(Instant::now() < late, "rank 1 has failed");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(tcp.barrier().is_err());
        assert!(tcp.has_ended(1) && !tcp.has_ended(tcp.rank()));
    });
}

#[test]
fn a_late_rank_is_named_by_all() {
    for size in [2, 3, 4] {
        let errors = ranks(size, Duration::from_millis(300), |tcp| {
            if tcp.rank() == 1 {
                thread::sleep(Duration::from_millis(900));
            }
            // What the late rank waits for may have arrived.
            let barriers = (0..2).map(|_| tcp.barrier());
            barriers.filter_map(Result::err).next().unwrap().to_string()
        });
        for error in errors {
            assert!(error.contains(&name(1)) && error.contains("is late"), "{size}: {error}");
        }
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_told_so() {
    let errors = ranks(2, Duration::from_millis(300), |tcp| {
        let from = 1 - tcp.rank();
        tcp.exchange(None, Some(Incoming { bytes: &mut [0], from })).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("same order")), "{errors:?}");
}

#[test]
fn an_interruption_stops_all_ranks() {
    let errors = ranks(3, TIME, |tcp| {
        if tcp.rank() != 2 {
            return tcp.exchange(None, Some(Incoming { bytes: &mut [0], from: 1 - tcp.rank() })).unwrap_err();
        }
        let _watch = interrupt::watch(|| true);
        tcp.exchange(None, Some(Incoming { bytes: &mut [0; 2], from: 0 })).unwrap_err()
    });
    assert!(matches!(errors[2], Error::Interrupted), "{}", errors[2]);
    for error in &errors[..2] {
        assert!(error.to_string().contains(&name(2)), "{error}");
        assert!(error.to_string().contains("was interrupted"), "{error}");
    }
}

thread_local! {
    /// What a check for interruptions exchanges with.
    static INNER: std::cell::RefCell<Option<Arc<Tcp>>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn a_collective_within_a_collective_is_an_error() {
    ranks(2, TIME, |tcp| {
        if tcp.rank() == 1 {
            thread::sleep(Duration::from_millis(200));
            return tcp.barrier().unwrap();
        }
        INNER.set(Some(tcp.clone()));
        let watch = interrupt::watch(|| {
            let inner = INNER.take();
            if let Some(inner) = inner {
                let error = inner.barrier().unwrap_err().to_string();
                assert!(error.contains("a collective within another"), "{error}");
            }
            false
        });
        tcp.barrier().unwrap();
        drop(watch);
        assert!(INNER.take().is_none(), "it was asked");
    });
}

#[test]
fn stray_connections_do_not_disturb_the_ranks() {
    let server = Store::connect("127.0.0.1", 0, true, TIME).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| Tcp::connect(&server, "s", 0, 2, TIME, TIME).unwrap());
        let published = server.get("s/rank/0").unwrap();
        let text = String::from_utf8(published).unwrap();
        let address = text.split('"').find(|part| part.starts_with("127.0.0.1:")).unwrap();
        let silent = TcpStream::connect(address).unwrap();
        for garbage in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"NXMESH\0\x01", &[0; 100]] {
            TcpStream::connect(address).unwrap().write_all(garbage).unwrap();
        }
        // A hello of another job is refused.
        let mut other = TcpStream::connect(address).unwrap();
        other.write_all(&[&b"NXMESH\0\x01"[..], &[9; 16], &[1, 0, 0, 0, 0, 0, 0, 0, 0]].concat()).unwrap();
        other.set_read_timeout(Some(TIME)).unwrap();
        let refused = other.read(&mut [0]);
        assert!(!matches!(refused, Ok(1..)), "{refused:?}");
        let store = Store::connect("127.0.0.1", server.port(), false, TIME).unwrap();
        let second = Tcp::connect(&store, "s", 1, 2, TIME, TIME).unwrap();
        let first = first.join().unwrap();
        let barrier = scope.spawn(move || second.barrier().unwrap());
        first.barrier().unwrap();
        barrier.join().unwrap();
        drop(silent);
    });
}

/// In a child process: its rank, and the port of the store.
const CHILD: &str = "NEURENIX_TEST_RANK";
const PORT: &str = "NEURENIX_TEST_PORT";

#[test]
fn a_killed_process_is_named_by_all() {
    if let Ok(port) = env::var(PORT) {
        return child(env::var(CHILD).unwrap().parse().unwrap(), port.parse().unwrap());
    }
    let server = Store::connect("127.0.0.1", 0, true, TIME).unwrap();
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "distributed::tcp::tests::a_killed_process_is_named_by_all";
        command.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
        command.env(CHILD, rank.to_string()).env(PORT, server.port().to_string());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut children = [1, 2].map(start);
    let tcp = Tcp::connect(&server, "test", 0, 3, TIME, TIME).unwrap();
    let mut values = numbers(0, 1 << 20);
    for _ in 0..3 {
        tcp.all_reduce(&mut values, DType::U32, Combine::Max).unwrap();
    }
    let killed = children[0].id();
    let (error, killing) = thread::scope(|scope| {
        let child = &mut children[0];
        let kill = scope.spawn(move || {
            // In the middle of a collective.
            thread::sleep(Duration::from_millis(100));
            child.kill().unwrap();
            let killing = Instant::now();
            child.wait().unwrap();
            killing
        });
        let error = loop {
            if let Err(error) = tcp.all_reduce(&mut values, DType::U32, Combine::Max) {
                break error.to_string();
            }
        };
        (error, kill.join().unwrap())
    });
    assert!(killing.elapsed() < Duration::from_secs(2), "{:?}", killing.elapsed());
    let expected = format!("rank 1 (process {killed} on host ");
    assert!(error.contains(&expected) && error.contains("has ended"), "{error}");
    let mut lines = BufReader::new(children[1].stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("failed: ")).unwrap();
    assert!(killing.elapsed() < Duration::from_secs(2), "{:?}", killing.elapsed());
    assert!(line.contains(&expected) && line.contains("has ended"), "{line}");
    lines.for_each(drop);
    assert!(children[1].wait().unwrap().success());
}

/// A rank that computes until it, or another one, is killed.
fn child(rank: usize, port: u16) {
    let store = Store::connect("127.0.0.1", port, false, TIME).unwrap();
    let tcp = Tcp::connect(&store, "test", rank, 3, TIME, TIME).unwrap();
    let mut values = numbers(rank, 1 << 20);
    loop {
        if let Err(error) = tcp.all_reduce(&mut values, DType::U32, Combine::Max) {
            println!("failed: {error}");
            return;
        }
    }
}
